#!lua flags=allow-oom
-- include: prelude
-- Records that the database refused an entry, or a head, as data; after enough attempts it is a dead letter.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   field ('!' for the head), revision that was refused (of a head: the scope revision at the reading), attempts that make
--        a dead letter, reason.  The head of a namespace is its record in SQL
-- Reply  {'ok', attempts so far, whether it is dead}: 0 attempts when it has been written again since, or is not to be flushed any more:
--        another worker flushed it meanwhile
-- Guards R10 (what is refused is set apart; it stays dirty and pinned; with a session's head all of its namespaces)

local base, member = names(KEYS[1], KEYS[2])
local is_head = ARGV[1] == '!'

-- A head is flushed with whatever is in the index of its scope, and of the namespaces of its session.
local function is_awaited()
  if not is_head then return call('SISMEMBER', base .. 'd:' .. member, ARGV[1]) == 1 end
  if call('ZSCORE', base .. 'dirty', member) then return true end
  for _, space in ipairs(call('SMEMBERS', base .. 'ns:' .. string.sub(member, 2))) do
    if call('ZSCORE', base .. 'dirty', space) then return true end
  end
end

if not is_awaited() then return {'ok', 0, 0} end
local value = is_head and head_version(base, member) or call('HGET', KEYS[2], ARGV[1])
if not value or is_above(value, ARGV[2]) or not is_head and is_above(ARGV[2], value) then return {'ok', 0, 0} end
local revision = string.sub(value, 1, 9)
local letters = base .. 'dead'
local name = member .. ARGV[1]
local attempts = 1
local letter = call('HGET', letters, name)
if letter and string.sub(letter, 1, 9) == revision then attempts = tonumber(string.match(letter, '^.........|%d|(%d+)|')) + 1 end
local dead = attempts >= tonumber(ARGV[3]) and 1 or 0
call('HSET', letters, name, revision .. '|' .. dead .. '|' .. attempts .. '|' .. string.format('%.0f', now()) .. '|' .. ARGV[4])
if dead == 1 then rest(KEYS[1], base, member, KEYS[2]) end
if dead == 1 and is_head then
  for _, space in ipairs(call('SMEMBERS', base .. 'ns:' .. string.sub(member, 2))) do rest(KEYS[1], base, space, base .. 'h:' .. space) end
end
return {'ok', attempts, dead}
