#!lua flags=no-writes
-- include: prelude
-- Lists the sessions of many buckets whose latest head SQL does not have yet, tombstones too.
--
-- KEYS   controls of the buckets
-- ARGV   letter and id of the index (see prelude), most members of one bucket, then per bucket the score to begin at
-- Reply  {'ok', {where to go on ('' at its end), then per session its member and {incarnation of its hash ('' where it is
--        the present one), revision, birth, cleared, deleted, org, app, user, session, title, messages, tokens, forked
--        from, values revision, updated}} per bucket}; {'register', number of the bucket...}; READONLY at a replica
--        A bucket is not begun after so many members as one bucket may give: one call never takes long.
-- Guards R14 (deleted at once for every process), R17

if at_replica() then return redis.error_reply(AT_REPLICA) end
local MOST = tonumber(ARGV[3])
local missing, incarnations = {'register'}, {}
for i, ctl in ipairs(KEYS) do
  incarnations[i] = enter(ctl)
  if not incarnations[i] then missing[#missing + 1] = i end
end
if #missing > 1 then return missing end

local total = 0
local function list(ctl, inc, since)
  if total >= MOST then return {since} end
  local base = string.sub(ctl, 1, -4)
  local index = base .. 'unflushed:' .. ARGV[1] .. ':' .. ARGV[2]
  -- By score, not by rank: members leave while somebody pages, and ranks would move.
  local found = call('ZRANGEBYSCORE', index, since, '+inf', 'WITHSCORES', 'LIMIT', 0, MOST)
  local rows = {''}
  if #found == 2 * MOST then
    -- From the last score again: a few may share a microsecond, but never so many.
    rows[1] = found[#found] == since and '(' .. since or found[#found]
  end
  for i = 1, #found, 2 do
    local h = call('HMGET', base .. 'h:' .. found[i], 'i', 'r', 'b', 'c', 'x', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'v', 'u')
    if h[1] then -- else Redis lost it
      if h[1] == inc then h[1] = '' end
      rows[#rows + 1] = found[i]
      rows[#rows + 1] = h
    end
  end
  total = total + #found / 2
  return rows
end

local reply = {'ok'}
for i, ctl in ipairs(KEYS) do reply[i + 1] = list(ctl, incarnations[i], ARGV[3 + i]) end
return reply
