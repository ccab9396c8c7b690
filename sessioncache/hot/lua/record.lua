#!lua flags=allow-oom
-- Records what this Redis is set up with, if nothing is recorded yet, in one step.
--
-- KEYS   the record
-- ARGV   names and values
-- Reply  all names and values that are recorded now
-- Guards R15 (whoever starts while memory is full can read, delete and flush)

if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], unpack(ARGV)) end
local names, reply = redis.call('HKEYS', KEYS[1]), {}
for _, name in ipairs(names) do
  reply[#reply + 1] = name
  reply[#reply + 1] = redis.call('HGET', KEYS[1], name)
end
return reply
