#!lua flags=allow-oom
-- include: prelude
-- Moves the due time of claimed scopes: a worker that works long renews its lease, one that failed backs off or gives back.
--
-- KEYS   control of the bucket
-- ARGV   worker, microseconds from now (0: others may have them at once, and are notified), member...
-- Reply  {'ok', how many of them this worker still holds}
-- Guards R9 (only the holder's claims), R15

local base = string.sub(KEYS[1], 1, -4)
local ends = string.format('%.0f', now() + tonumber(ARGV[2]))
local held = 0
for i = 3, #ARGV do
  local claim = call('HGET', KEYS[1], 'c:' .. ARGV[i])
  if claim and string.match(claim, '^(.-)|') == ARGV[1] then
    held = held + call('ZADD', base .. 'dirty', 'XX', 'CH', ends, ARGV[i])
    if ARGV[2] == '0' then call('HDEL', KEYS[1], 'c:' .. ARGV[i])
    else call('HSET', KEYS[1], 'c:' .. ARGV[i], ARGV[1] .. '|' .. string.format('%.0f', now()) .. '|' .. ends) end
  end
end
if ARGV[2] == '0' and held > 0 then redis.pcall('PUBLISH', string.match(base, '^(.*):{') .. ':wake', base) end
return {'ok', held}
