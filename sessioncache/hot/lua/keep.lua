#!lua flags=allow-oom
-- include: prelude
-- Renews the time to live of what a reading (read.lua) found to have little left.
--
-- KEYS   per part: control of its bucket, hash of its scope or temp hash
-- ARGV   milliseconds a clean scope stays, milliseconds a temp hash lives; then per part: kind
-- Reply  {'ok'}
-- Guards R15 (dirty hashes stay pinned)

for i = 1, #KEYS, 2 do
  local key, kind = KEYS[i + 1], ARGV[2 + (i + 1) / 2]
  local ttl = kind == 't' and ARGV[2] or ARGV[1]
  local left = call('PTTL', key)
  -- Never gives a time to live to a hash that has none, and never shortens one (of a tombstone).
  if left >= 0 and left < tonumber(ttl) then
    local base, member = names(KEYS[i], key)
    -- What was read of an erased user stays no longer than writes are refused (install.lua).
    if kind ~= 'u' or not erased_until(base, string.sub(member, 2)) then call('PEXPIRE', key, ttl) end
  end
end
return {'ok'}
