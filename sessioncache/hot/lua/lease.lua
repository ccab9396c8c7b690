#!lua flags=allow-oom
-- include: prelude
-- Takes, renews or gives back the run lease of a session: one holder at a time.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   'take', 'renew' or 'free', birth, token (random, of one taking), microseconds from now, microseconds for which a token that was
--        given back is remembered
-- Reply  {'ok'} {'taken', microseconds until it ends} {'lost'} {'register', 1} {'revalidate', 1} {'cold', 1} {'gone'}
-- Guards R4 (whoever gave a token back does not hold it by a copy of the taking that comes late), R5 (a lease is of one life),
--        R17 (and of one incarnation: what Redis forgot nobody holds)

local ctl, hash, birth, token = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
local inc, _, ops = enter(ctl)
if not inc then return {'register', 1} end
local base, member = names(ctl, hash)
local holder, left = lease_of(ctl, member, inc, birth)
if ARGV[1] == 'free' then
  remember(ctl, base, token, ops, tonumber(ARGV[5]), {'taken', 0})
  if holder ~= token then return {'lost'} end
  call('HDEL', ctl, 'l:' .. member)
  return {'ok'}
end
local problem = host_problem(base, string.sub(member, 2), inc, birth)
if problem == 'gone' then return {'gone'} end
if problem then return {problem, 1} end
if ARGV[1] == 'renew' and holder ~= token then return {'lost'} end
if holder and holder ~= token and left > 0 then return {'taken', left} end
local before = ARGV[1] == 'take' and recall(base, token)
if before then return before end
call('HSET', ctl, 'l:' .. member, table.concat({inc, birth, token, string.format('%.0f', now() + tonumber(ARGV[4]))}, '|'))
return {'ok'}
