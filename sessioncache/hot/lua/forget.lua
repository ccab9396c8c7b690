#!lua flags=allow-oom
-- include: prelude
-- Forgets who fell silent long ago: run leases whose runners were killed and that nobody has taken since, tokens of loaders that
-- were killed, and workers.  And of the namespaces that are listed as hot, some that are not any more.
--
-- KEYS   control of the bucket
-- ARGV   microseconds since when a lease or a token must be over, or a worker silent
-- Reply  {'ok', how many were forgotten}

local LOOKED_AT = 1000
local WHEN = {['l:'] = '|(%d+)$', ['t:'] = '|(%d+)$', ['w:'] = '^(%d+)|'}
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
local base, cold = string.sub(KEYS[1], 1, -4), {}
for _, member in ipairs(call('SRANDMEMBER', base .. 'spaces', LOOKED_AT)) do
  if call('EXISTS', base .. 'h:' .. member) == 0 then cold[#cold + 1] = member end
end
in_chunks('SREM', base .. 'spaces', cold)
return {'ok', #old}
