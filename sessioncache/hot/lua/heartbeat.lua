#!lua flags=allow-oom
-- include: prelude
-- Notes that a worker lives (or has ended), and forgets those that have been silent for an hour.
--
-- KEYS   control of bucket 0
-- ARGV   worker, 'alive' or 'ended', what it says of itself (JSON)
-- Reply  {'ok'}

if ARGV[2] == 'ended' then
  call('HDEL', KEYS[1], 'w:' .. ARGV[1])
  return {'ok'}
end
local silent = {}
for i, field in ipairs(call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'w:' then
    local seen = tonumber(string.match(call('HGET', KEYS[1], field), '^(%d+)|') or 0)
    if seen < now() - 3600000000 then silent[#silent + 1] = field end
  end
end
in_chunks('HDEL', KEYS[1], silent)
call('HSET', KEYS[1], 'w:' .. ARGV[1], string.format('%.0f', now()) .. '|' .. ARGV[3])
return {'ok'}
