#!lua flags=allow-oom
-- include: prelude
-- Takes a dead letter back, so that its entry is flushed again.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   field ('!' for the head)
-- Reply  {'ok', whether there was a dead letter}
-- Guards R10 (retried on command, and by itself now and then)

local base, member = names(KEYS[1], KEYS[2])
local had = call('HDEL', base .. 'dead', member .. ARGV[1])
if had == 1 and ARGV[1] == '!' then wake_namespaces(base, string.sub(member, 2)) end
local marks = base .. 'd:' .. member
if had == 1 and (call('SISMEMBER', marks, ARGV[1]) == 1 or ARGV[1] == '!' and call('EXISTS', marks) == 1) then
  call('ZADD', base .. 'dirty', now(), member)
  call('ZADD', base .. 'since', 'NX', now(), member)
  wake(base)
end
return {'ok', had}
