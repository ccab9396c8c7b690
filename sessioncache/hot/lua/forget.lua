#!lua flags=allow-oom
-- include: prelude
-- Forgets who fell silent long ago: run leases whose runners were killed and that nobody has taken since, tokens of loaders that
-- were killed, and workers.  Of the namespaces that are listed as hot, some that are not any more.  And idempotency keys, in a bucket
-- where no call does so.
--
-- KEYS   control of the bucket
-- ARGV   microseconds since when a lease or a token must be over, or a worker silent; microseconds for which an idempotency key is
--        remembered; what this script last returned of their generations ('' nothing), and microseconds that have passed
--        since by a clock of the caller's that nobody can set
-- Reply  {'ok', how many were forgotten, which generation of idempotency keys there is and its age ('' none)}
-- Guards R4 (an id stays its lifetime, however the clock of Redis is set, and goes when that is over), R17 (what was held in
--        another incarnation is held by nobody)

local LOOKED_AT = 1000
local WHEN = {['l:'] = '|(%d+)$', ['t:'] = '|(%d+)$', ['w:'] = '^(%d+)|'}
local ctl, base, lifetime = KEYS[1], string.sub(KEYS[1], 1, -4), tonumber(ARGV[2])
local known, old = {}, {}
for _, field in ipairs(call('HKEYS', ctl)) do
  if WHEN[string.sub(field, 1, 2)] then known[#known + 1] = field end
end
local inc = call('HGET', ctl, 'incarnation')
for i, value in ipairs(values_of(ctl, known)) do
  local kind = string.sub(known[i], 1, 2)
  local seen = tonumber(string.match(value, WHEN[kind]) or 0)
  local is_other = kind ~= 'w:' and string.match(value, '^[^|]*') ~= inc
  if is_other or seen < now() - tonumber(ARGV[1]) then old[#old + 1] = known[i] end
end
in_chunks('HDEL', ctl, old)

local cold = {}
for _, member in ipairs(call('SRANDMEMBER', base .. 'spaces', LOOKED_AT)) do
  if call('EXISTS', base .. 'h:' .. member) == 0 then cold[#cold + 1] = member end
end
in_chunks('SREM', base .. 'spaces', cold)

-- R4: as long as no call has changed it (see `remember`), a generation is older by all that has passed for the caller.
local ops = call('HGET', ctl, 'ops') or ''
local which, age = string.match(ops, '^([01])|%d+|(%d+)$')
if which and ops == ARGV[3] then
  age = age + tonumber(ARGV[4])
  if age >= lifetime then
    which, age = which == '0' and '1' or '0', 0
    call('UNLINK', base .. 'ops:' .. which)
  end
  if call('EXISTS', base .. 'ops:0', base .. 'ops:1') == 0 then
    ops = ''
    call('HDEL', ctl, 'ops')
  else
    ops = string.format('%s|%.0f|%.0f', which, now(), age)
    call('HSET', ctl, 'ops', ops)
  end
end
return {'ok', #old, ops}
