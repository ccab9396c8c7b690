#!lua
-- include: prelude
-- Stores one piece of a scope that is about to come into being, and its marks, under other names (see gathered.lua).
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   name of the birth (random), milliseconds for which what is there stays, then fields and values
-- Reply  {'ok'} {'register', 1}
-- Guards R12 (a scope is there whole or not at all), R15 (what is never born goes)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
local pieces, fields = base .. 'p:' .. member .. ':' .. ARGV[1], {}
for i = 3, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
call('SADD', pieces .. ':d', unpack(fields))
call('PEXPIRE', pieces .. ':d', ARGV[2])
call('HSET', pieces, unpack(ARGV, 3))
call('PEXPIRE', pieces, ARGV[2])
return {'ok'}
