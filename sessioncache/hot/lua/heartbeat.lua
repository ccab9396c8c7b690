#!lua flags=allow-oom
-- include: prelude
-- Notes that a worker lives, or has ended.  `forget.lua` forgets those that fell silent.
--
-- KEYS   control of bucket 0
-- ARGV   worker, 'alive' or 'ended', what it says of itself (JSON)
-- Reply  {'ok'}

if ARGV[2] == 'ended' then
  call('HDEL', KEYS[1], 'w:' .. ARGV[1])
else
  call('HSET', KEYS[1], 'w:' .. ARGV[1], string.format('%.0f', now()) .. '|' .. ARGV[3])
end
return {'ok'}
