#!lua flags=allow-oom
-- include: prelude
-- Lists the sessions of a bucket whose latest head SQL does not have yet, tombstones too.
--
-- KEYS   control of the bucket
-- ARGV   'u', 'a' or 'b' (of a user, an app, a bare session id), its id, score to begin at, most members
-- Reply  {'ok', number of members, score of the last one, {member, revision, birth, cleared, deleted, org, app, user,
--        session, title, messages, tokens, forked from, values revision, updated} per session} {'register', 1}
-- Guards R14 (deleted at once for every process), R17

if not enter(KEYS[1]) then return {'register', 1} end
local base = string.sub(KEYS[1], 1, -4)
local index = base .. 'unflushed:' .. ARGV[1] .. ':' .. ARGV[2]
-- By score, not by rank: members leave while somebody pages, and ranks would move.
local found = call('ZRANGEBYSCORE', index, ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
local reply = {'ok', #found / 2, found[#found] or ARGV[3]}
for i = 1, #found, 2 do
  local h = call('HMGET', base .. 'h:' .. found[i], 'r', 'b', 'c', 'x', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'v', 'u')
  if h[1] then
    table.insert(h, 1, found[i])
    for j = 1, 15 do h[j] = h[j] or '' end
    reply[#reply + 1] = h
  else
    call('ZREM', index, found[i]) -- Redis lost it
  end
end
return reply
