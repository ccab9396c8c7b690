#!lua flags=allow-oom
-- include: prelude
-- Tells how far a scope has been flushed, and asks for its flush now.
--
-- KEYS   control of the bucket, hash of the scope
-- Reply  {'ok', incarnation, incarnation of the hash ('' not hot), flushed through (zero where the scope, or a namespace's
--        session, is to be compared with SQL), marks, {field, revision, ...} of dead letters, '!' for the head} {'register', 1}
-- Guards R11 (evidence bears the incarnation, and is none once SQL was found to be older; the due time is pulled forward, a living claim is left alone)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
local h = call('HMGET', KEYS[2], 'i', 'f', 'd', 'y')
local doubtful = h[4] or (h[3] and call('HGET', base .. 'h:s' .. h[3], 'y'))
local marks = call('SCARD', base .. 'd:' .. member)
local dead, waits = {}, marks > 0
if call('EXISTS', base .. 'dead') == 1 then
  local fields = call('SMEMBERS', base .. 'd:' .. member)
  for field, revision in pairs(letters_of(base, member, fields, '1') or {}) do
    dead[#dead + 1] = field
    dead[#dead + 1] = revision
  end
  waits = marks > #dead / 2
  if is_headless(base, member, h[3]) then
    waits = false
    dead[#dead + 1] = '!'
    dead[#dead + 1] = ZERO
  end
end
if waits then
  local due = tonumber(call('ZSCORE', base .. 'dirty', member) or 0)
  if claimed_until(KEYS[1], member) == 0 then
    if due > now() then call('ZADD', base .. 'dirty', now(), member) end
    wake(base) -- again and again: one wake-up may be missed
  end
end
return {'ok', inc, h[1] or '', not doubtful and h[2] or ZERO, marks, dead}
