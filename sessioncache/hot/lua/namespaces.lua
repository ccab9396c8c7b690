#!lua flags=no-writes
-- include: prelude
-- Tells which namespaces of a session SQL may not know of, and what changes when there is one more.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   birth ('' any life)
-- Reply  {'ok', birth, l, namespace...}: the dirty ones {'register', 1} {'revalidate', 1} {'cold', 1} {'gone'}; READONLY at a replica
-- Guards R5, R17

if at_replica() then return redis.error_reply(AT_REPLICA) end
local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
local h = call('HMGET', KEYS[2], 'b', 'l')
local problem = host_problem(base, string.sub(member, 2), inc, ARGV[1] ~= '' and ARGV[1] or h[1])
if problem == 'gone' then return {'gone'} end
if problem then return {problem, 1} end
local reply = {'ok', h[1], h[2] or ''}
for _, namespace in ipairs(call('SMEMBERS', base .. 'ns:' .. string.sub(member, 2))) do
  local name = call('HGET', base .. 'h:' .. namespace, 'g')
  if name then reply[#reply + 1] = name end
end
return reply
