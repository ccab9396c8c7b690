#!lua flags=allow-oom
-- include: prelude
-- Gives one of many processes the turn to do something for all of them.
--
-- KEYS   control of bucket 0
-- ARGV   name, microseconds until the next turn, 1: whoever asks has the turn already
-- Reply  {'ok', '1' for whoever has the turn}

local taken = tonumber(call('HGET', KEYS[1], 'turn:' .. ARGV[1]) or 0)
local ends = now() + tonumber(ARGV[2])
if ARGV[3] ~= '1' and taken > now() and taken <= ends then return {'ok', 0} end
call('HSET', KEYS[1], 'turn:' .. ARGV[1], string.format('%.0f', ends))
return {'ok', 1}
