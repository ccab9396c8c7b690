#!lua
-- include: prelude
-- Brings a scope that was read from SQL into being, if nobody else did or could have since the reading.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds a clean scope stays, number of fields that were staged before, then fields and values
-- Reply  {'ok'} {'retry'} (the token or something staged is lost, or another did it) {'register', 1}
-- Guards R12 (whole), R13 (consumes the token; never over an existing hash), R15 (a clean hash gets a TTL)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
if call('EXISTS', KEYS[2]) == 1 then return {'retry'} end
destroy_token(KEYS[1], member)
if ARGV[3] ~= '0' then
  local staged = base .. 'p:' .. member .. ':' .. ARGV[1]
  if call('HLEN', staged) ~= tonumber(ARGV[3]) then -- it has a TTL: a chunk may have been evicted before the next came
    call('DEL', staged)
    return {'retry'}
  end
  call('RENAME', staged, KEYS[2])
end
call('HSET', KEYS[2], 'i', inc, unpack(ARGV, 4))
call('PEXPIRE', KEYS[2], ARGV[2])
return {'ok'}
