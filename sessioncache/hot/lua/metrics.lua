#!lua flags=no-writes
-- include: prelude
-- Tells how a bucket fares, at a cost that grows neither with its dirt nor with what its control holds.  Changes nothing.
--
-- KEYS   control of the bucket
-- ARGV   scopes of which the dirty fields are counted, dead letters that are read
-- Reply  {incarnation ('' none), '1' if SQL is known to know it, dirty scopes, scopes counted, their dirty entries,
--        since when the oldest dirty scope waits (microseconds, 0 none), dead letters, {counter, value, ...},
--        '1' if Redis had forgotten something when the incarnation was made}
-- Guards R15 (works when memory is full), R17 (also where the bucket has to be registered first)

local ctl = KEYS[1]
local base = string.sub(ctl, 1, -4)
local most, most_letters = tonumber(ARGV[1]), tonumber(ARGV[2])
local COUNTERS = {'rows', 'flushes', 'hydrates', 'conflicts'}
local IS_COUNTER = {rows = true, flushes = true, hydrates = true, conflicts = true}
local FEW = 256
local LAST_LAG = 128 -- 50 days

local function counters()
  local found = {}
  if call('HLEN', ctl) <= FEW then
    local all = call('HGETALL', ctl)
    for i = 1, #all, 2 do
      if IS_COUNTER[all[i]] or string.sub(all[i], 1, 4) == 'lag:' then
        found[#found + 1] = all[i]
        found[#found + 1] = all[i + 1]
      end
    end
    return found
  end
  local asked = {unpack(COUNTERS)}
  for step = 0, LAST_LAG do asked[#asked + 1] = string.format('lag:%.0f', step) end
  for i, value in ipairs(call('HMGET', ctl, unpack(asked))) do
    if value then
      found[#found + 1] = asked[i]
      found[#found + 1] = value
    end
  end
  return found
end

local function dirt()
  local scopes, entries = call('ZCARD', base .. 'dirty'), 0
  if scopes == 0 then return 0, 0, 0 end
  local some = scopes <= most and call('ZRANGE', base .. 'dirty', 0, -1) or call('ZRANDMEMBER', base .. 'dirty', most)
  for _, member in ipairs(some) do
    local marks = base .. 'd:' .. member
    entries = entries + call('SCARD', marks)
    if string.sub(member, 1, 1) == 's' then entries = entries - call('SISMEMBER', marks, '!') end
  end
  return scopes, #some, entries
end

-- R10: dead letters, and what the database refused less often than makes one.  Where there are many, these count too.
local function letters()
  local all = call('HLEN', base .. 'dead')
  if all == 0 or all > most_letters then return all end
  local dead = 0
  for _, letter in ipairs(call('HVALS', base .. 'dead')) do
    if string.sub(letter, 11, 11) ~= '0' then dead = dead + 1 end
  end
  return dead
end

local scopes, counted, entries = dirt()
local oldest = scopes > 0 and call('ZRANGE', base .. 'since', 0, 0, 'WITHSCORES')[2]
return {call('HGET', ctl, 'incarnation') or '', enter(ctl) and 1 or 0, scopes, counted, entries,
        string.format('%.0f', tonumber(oldest or 0)), letters(), counters(),
        call('HEXISTS', ctl, 'forgot')}
