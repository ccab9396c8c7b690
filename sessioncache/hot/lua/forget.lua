#!lua flags=allow-oom
-- include: prelude
-- Forgets run leases that ended long ago: their runners were killed, and nobody has taken them since.
--
-- KEYS   control of the bucket
-- ARGV   microseconds since when a lease must be over
-- Reply  {'ok', how many were forgotten}

local old = {}
for _, field in ipairs(call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'l:' then
    local ends = tonumber(string.match(call('HGET', KEYS[1], field), '|(%d+)$'))
    if ends < now() - tonumber(ARGV[1]) then old[#old + 1] = field end
  end
end
in_chunks('HDEL', KEYS[1], old)
return {'ok', #old}
