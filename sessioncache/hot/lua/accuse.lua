#!lua flags=allow-oom
-- include: prelude
-- Notes that the database refused an entry as data; after enough attempts it is a dead letter.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   field, revision that was refused, attempts that make a letter, reason
-- Reply  {'ok', attempts so far, whether it is dead}: 0 attempts when the entry has been written again since
-- Guards R10 (what is refused is set apart; it stays dirty and pinned)

local base, member = names(KEYS[1], KEYS[2])
local value = call('HGET', KEYS[2], ARGV[1])
if not value or string.sub(value, 1, 9) ~= ARGV[2] then return {'ok', 0, 0} end
local letters = base .. 'dead'
local name = member .. ARGV[1]
local attempts = 1
local letter = call('HGET', letters, name)
if letter and string.sub(letter, 1, 9) == ARGV[2] then attempts = tonumber(string.match(letter, '^.........|%d|(%d+)|')) + 1 end
local dead = attempts >= tonumber(ARGV[3]) and 1 or 0
call('HSET', letters, name, ARGV[2] .. '|' .. dead .. '|' .. attempts .. '|' .. string.format('%.0f', now()) .. '|' .. ARGV[4])
if dead == 1 then rest(KEYS[1], base, member, KEYS[2]) end
return {'ok', attempts, dead}
