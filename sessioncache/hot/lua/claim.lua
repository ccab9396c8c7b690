#!lua flags=allow-oom
-- include: prelude
-- Claims due scopes of a bucket for a worker: moves their due time a lease ahead, records worker and time, removes nothing.
--
-- KEYS   control of the bucket
-- ARGV   worker, microseconds of lease, microseconds of flush delay, most scopes, '1': also what is not due yet
-- Reply  {'ok', incarnation, microseconds until the next is due (-1: nothing is left), member...} {'register', 1}
-- Guards R8 (honest age), R9 (claims expire; what was dated before the clock was set back is taken), R15 (works when memory is full), R17

local ctl = KEYS[1]
local base = string.sub(ctl, 1, -4)
local index = base .. 'dirty'
local worker, lease, delay, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local inc, known_delay = enter(ctl)
if not inc then return {'register', 1} end
if known_delay ~= delay then call('HSET', ctl, 'delay', ARGV[3]) end

-- R8: what became dirty before the clock was set back is dated ahead of it: it is dated anew, the youngest of it as old as now.
local newest = call('ZREVRANGE', base .. 'since', 0, 0, 'WITHSCORES')[2]
if newest and tonumber(newest) > now() then
  local ahead, dated = tonumber(newest) - now(), {}
  for i, found in ipairs(call('ZRANGEBYSCORE', base .. 'since', '(' .. string.format('%.0f', now()), '+inf', 'WITHSCORES')) do
    if i % 2 == 1 then dated[i + 1] = found else dated[i - 1] = string.format('%.0f', tonumber(found) - ahead) end
  end
  in_chunks('ZADD', base .. 'since', dated)
end

-- Beyond the longest that a scope has to wait lie claims that live, and what was dated before the clock was set back.
local longest = lease + math.max(delay, known_delay)
local taken = call('ZRANGEBYSCORE', index, '-inf', now(), 'LIMIT', 0, most)
if #taken < most then
  local from = '(' .. string.format('%.0f', now() + (ARGV[5] == '1' and 0 or longest))
  for _, member in ipairs(call('ZRANGEBYSCORE', index, from, '+inf', 'LIMIT', 0, most - #taken)) do
    if claimed_until(ctl, member) == 0 then taken[#taken + 1] = member end
  end
end

local ends = string.format('%.0f', now() + lease)
local note = worker .. '|' .. string.format('%.0f', now()) .. '|' .. ends
for _, member in ipairs(taken) do
  call('ZADD', index, ends, member)
  call('HSET', ctl, 'c:' .. member, note)
end
local first = call('ZRANGE', index, 0, 0, 'WITHSCORES')
local wait = first[2] and math.min(math.max(0, tonumber(first[2]) - now()), longest) or -1
return {'ok', inc, wait, unpack(taken)}
