#!lua
-- include: prelude
-- Stores one piece of a scope that is about to be created, and its marks, under other names (see gathered.lua).
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   id of the user, name of the birth (random), milliseconds for which what is there stays, then fields and values
-- Reply  {'ok'} {'erased'} {'register', 1}
-- Guards R12 (a scope is there whole or not at all), R14 (writes of an erased user are refused, and what is stored there is found),
--        R15 (what is never born goes)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if erased_until(base, ARGV[1]) then return {'erased'} end
local name = member .. ':' .. ARGV[2]
local pieces, fields = base .. 'p:' .. name, {}
for i = 4, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
note_pieces(base, ARGV[1], name, ARGV[3])
call('SADD', pieces .. ':d', unpack(fields))
call('PEXPIRE', pieces .. ':d', ARGV[3])
call('HSET', pieces, unpack(ARGV, 4))
call('PEXPIRE', pieces, ARGV[3])
return {'ok'}
