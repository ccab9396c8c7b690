#!lua flags=allow-oom
-- include: prelude
-- Deletes a session: leaves a tombstone, at once for every process.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   birth ('' any life), parents (see mark), idempotency key, its incarnation, microseconds it is remembered (writing.lua);
--        '' or a revision: only a clean session that has not been in use since, and that no runner has leased;
--        of a session that is not hot also: the token, largest revision that SQL knows, head fields and values
-- Reply  {'ok', existed, revision, incarnation, flushed through, living keys (-1: it was not hot), {dirty namespace, its living keys, ...}
--        (none in the reply to a copy of the call)};
--        {'kept'}; {'register', 1} {'revalidate', 1} {'cold', 1} {'gone'} {'retry'}: the token is lost
-- Guards R1 (mark first), R5 (birth), R13 (under the token), R14 (tombstone, last cleared), R15 (works when memory is full), R16 (temp: dies with it); its namespaces and its lease go, too

local ctl, hash = KEYS[1], KEYS[2]
local inc, delay, ops = enter(ctl)
if not inc then return {'register', 1} end
local base, member = names(ctl, hash)
if ARGV[3] ~= '' and ARGV[4] ~= inc then return {'incarnation', inc} end
local before = recall(base, ARGV[3])
if before then return before end
-- R4: a refused one is over, too (see writing.lua).  `told` is what is remembered, if not all.
local function reply_once(reply, told)
  remember(ctl, base, ARGV[3], ops, tonumber(ARGV[5]), told or reply)
  return reply
end
local h = call('HMGET', hash, 'i', 'r', 'b', 'x', 'f', 'y', 'n', 'u', 'j')
local cold = not h[1]
if cold then -- not hot: the caller has read SQL under a token
  if not ARGV[7] then return reply_once({'cold', 1}) end
  if not holds_token(ctl, member, inc, ARGV[7]) then return reply_once({'retry'}) end
  local told = {}
  for i = 9, #ARGV, 2 do told[ARGV[i]] = ARGV[i + 1] end
  h = {inc, ARGV[8], told.b, false, false, false, false, told.u}
end
if h[1] ~= inc or h[6] then return reply_once({'revalidate', 1}) end
if ARGV[1] ~= '' and (h[4] or ARGV[1] ~= h[3]) then return reply_once({'gone'}) end
if h[4] then return reply_once({'ok', 0, h[2], inc, h[5] or ZERO, 0, {}}) end
if ARGV[6] ~= '' and (math.max(rev_number(h[8]), rev_number(h[9] or ZERO)) > rev_number(ARGV[6]) or call('EXISTS', base .. 'd:' .. member) == 1
  or has_dirty_namespaces(base, string.sub(member, 2)) or (select(2, lease_of(ctl, member, inc, h[3])) or 0) > 0) then
  if cold then destroy_token(ctl, member) end
  return reply_once({'kept'})
end

local revision = rev_digits(next_revision(rev_number(h[2])))
mark(base, member, hash, {'!'}, ARGV[2], delay)
destroy_token(ctl, member)
if cold then call('HSET', hash, 'i', inc, unpack(ARGV, 9)) end
call('HSET', hash, 'x', revision, 'c', revision, 'r', revision, 'v', revision, 'h', revision, 'u', revision, 'n', 0, 'z', 0)
local dead = {}
for _, field in ipairs(call('HKEYS', hash)) do
  if string.sub(field, 1, 1) == '=' then dead[#dead + 1] = field end
end
in_chunks('HDEL', hash, dead)
if call('EXISTS', base .. 'dead') == 1 then -- R10: what is deleted needs no dead letter
  for i, field in ipairs(dead) do dead[i] = member .. field end
  in_chunks('HDEL', base .. 'dead', dead)
end
local session = string.sub(member, 2)
local namespaces = {}
for _, namespace in ipairs(call('SMEMBERS', base .. 'ns:' .. session)) do
  local n = call('HMGET', base .. 'h:' .. namespace, 'g', 'n')
  if n[1] then
    namespaces[#namespaces + 1] = n[1]
    namespaces[#namespaces + 1] = tonumber(n[2])
  end
  drop_scope(ctl, base, namespace, 0) -- its session is dirty
end
call('UNLINK', base .. 'temp:' .. session, base .. 'ns:' .. session)
call('HDEL', ctl, 'l:' .. member)
announce(base .. 'w:' .. member, 'x', revision, h[2], inc, {})
local f, living = h[5] or ZERO, tonumber(h[7] or -1)
-- The names of an erased user's namespaces must not stay.
return reply_once({'ok', 1, revision, inc, f, living, namespaces}, {'ok', 1, revision, inc, f, living, {}})
