#!lua flags=allow-oom
-- include: prelude
-- Claims due scopes of a bucket for a worker: moves their due time a lease ahead, notes worker and time, removes nothing.
--
-- KEYS   control of the bucket
-- ARGV   worker, microseconds of lease, microseconds of flush delay, most scopes, '1': also what is not due yet
-- Reply  {'ok', incarnation, microseconds until the next is due (-1: nothing is left), member...} {'register', 1}
-- Guards R9 (claims expire; a date absurdly far ahead is taken), R15 (works when memory is full), R17

local ctl = KEYS[1]
local base = string.sub(ctl, 1, -4)
local index = base .. 'dirty'
local worker, lease, delay, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local inc, known_delay = enter(ctl)
if not inc then return {'register', 1} end
if known_delay ~= delay then call('HSET', ctl, 'delay', ARGV[3]) end

local taken = call('ZRANGEBYSCORE', index, '-inf', now(), 'LIMIT', 0, most)
local function take_more(from)
  if #taken >= most then return end
  for _, member in ipairs(call('ZRANGEBYSCORE', index, from, '+inf', 'LIMIT', 0, most - #taken)) do
    local claim = call('HGET', ctl, 'c:' .. member)
    local ends = claim and tonumber(string.match(claim, '|(%d+)$')) or 0
    if ends <= now() or ends > now() + 1200000000 then taken[#taken + 1] = member end
  end
end
if ARGV[5] == '1' then take_more('(' .. string.format('%.0f', now()))
else take_more(string.format('%.0f', now() + 1200000000)) end

local ends = string.format('%.0f', now() + lease)
local note = worker .. '|' .. string.format('%.0f', now()) .. '|' .. ends
for _, member in ipairs(taken) do
  call('ZADD', index, ends, member)
  call('HSET', ctl, 'c:' .. member, note)
end
local first = call('ZRANGE', index, 0, 0, 'WITHSCORES')
local wait = first[2] and math.max(0, tonumber(first[2]) - now()) or -1
return {'ok', inc, wait, unpack(taken)}
