#!lua
-- include: prelude
-- Stores one chunk of a large scope under another name, to be installed whole; renews the loader's token.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds after which another loader may take over, then fields and values
-- Reply  {'ok'} {'retry'} (the token is lost) {'register', 1}
-- Guards R12 (a scope is installed whole), R13 (a loader that works long renews)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
call('HSET', KEYS[1], 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
local staged = base .. 'p:' .. member .. ':' .. ARGV[1]
call('HSET', staged, unpack(ARGV, 3))
call('PEXPIRE', staged, ARGV[2])
return {'ok'}
