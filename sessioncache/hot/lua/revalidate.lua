#!lua flags=allow-oom
-- include: prelude
-- Settles a hash of an older incarnation: one without dirt is dropped, to be hydrated anew; dirt is kept.
--
-- KEYS   control of the bucket, hash of the scope
-- Reply  {'dropped'} {'kept', number of marks} {'fresh'} (nothing to do) {'register', 1}
-- Guards R17 (a clean hash of what Redis remembered earlier is never shown)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local have = call('HGET', KEYS[2], 'i')
if not have or have == inc then return {'fresh'} end
local base, member = names(KEYS[1], KEYS[2])
local marks = call('SCARD', base .. 'd:' .. member)
if marks == 0 then
  call('DEL', KEYS[2])
  call('ZREM', base .. 'dirty', member)
  call('ZREM', base .. 'since', member)
  return {'dropped'}
end
call('ZADD', base .. 'dirty', 'NX', now(), member)
call('ZADD', base .. 'since', 'NX', now(), member)
call('PERSIST', KEYS[2])
call('HSET', KEYS[2], 'i', inc)
return {'kept', marks}
