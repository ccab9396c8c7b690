#!lua flags=allow-oom
-- include: prelude
-- Forgets who fell silent long ago: run leases whose runners were killed and that nobody has taken since, and workers.
--
-- KEYS   control of the bucket
-- ARGV   microseconds since when a lease must be over, or a worker silent
-- Reply  {'ok', how many were forgotten}

local WHEN = {['l:'] = '|(%d+)$', ['w:'] = '^(%d+)|'}
local known = {}
for _, field in ipairs(call('HKEYS', KEYS[1])) do
  if WHEN[string.sub(field, 1, 2)] then known[#known + 1] = field end
end
local old = {}
for i, value in ipairs(values_of(KEYS[1], known)) do
  local seen = tonumber(string.match(value, WHEN[string.sub(known[i], 1, 2)]) or 0)
  if seen < now() - tonumber(ARGV[1]) then old[#old + 1] = known[i] end
end
in_chunks('HDEL', KEYS[1], old)
return {'ok', #old}
