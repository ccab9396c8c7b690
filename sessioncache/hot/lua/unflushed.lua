#!lua flags=allow-oom
-- include: prelude
-- Lists the sessions of a bucket whose latest head SQL does not have yet, tombstones too.
--
-- KEYS   control of the bucket
-- ARGV   'u', 'a' or 'b' (of a user, an app, a bare session id), its id, first and last place
-- Reply  {'ok', number of members, {member, revision, birth, cleared, deleted, org, app, user, session, title, messages,
--        tokens, forked from, values revision, updated} per session whose hash is there} {'register', 1}
-- Guards R14 (deleted at once for every process), R17

if not enter(KEYS[1]) then return {'register', 1} end
local base = string.sub(KEYS[1], 1, -4)
local members = call('ZRANGE', base .. 'unflushed:' .. ARGV[1] .. ':' .. ARGV[2], ARGV[3], ARGV[4])
local reply = {'ok', #members}
for _, member in ipairs(members) do
  local h = call('HMGET', base .. 'h:' .. member, 'r', 'b', 'c', 'x', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'v', 'u')
  if h[1] then
    table.insert(h, 1, member)
    for i = 1, 15 do h[i] = h[i] or '' end
    reply[#reply + 1] = h
  end
end
return reply
