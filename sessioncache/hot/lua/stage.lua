#!lua
-- include: prelude
-- Stores one chunk of a large scope under another name, to be installed whole; renews the loader's token.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds after which another loader may take over, id of the user ('' of an app's scope); of a namespace
--        parents (see mark) and birth of its session, '' and '' else; then fields and values
-- Reply  {'ok'} {'retry'} (the token is lost, or the session changed) {'register', 1}
-- Guards R12 (a scope is installed whole), R13 (a loader that works long renews), R14 (of an erased user nothing is staged, since
--        what is deleted has no token, nor a namespace of it a session; what lies there is found)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
if ARGV[4] ~= '' and host_problem(base, ARGV[4], inc, ARGV[5]) then return {'retry'} end
call('HSET', KEYS[1], 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
local name = member .. ':' .. ARGV[1]
local staged = base .. 'p:' .. name
if ARGV[3] ~= '' then note_pieces(base, ARGV[3], name, ARGV[2]) end
call('HSET', staged, unpack(ARGV, 6))
call('PEXPIRE', staged, ARGV[2])
return {'ok'}
