#!lua
-- include: prelude
-- Notes that a session is in use, unless that is known from lately: reading it, and writing temp: keys or what is shared, leave no
-- trace of their own.  Neither revision nor time of its values moves; SQL gets the head anew.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   birth, parents (see mark), microseconds for which a record of use is good
-- Reply  {'ok', microseconds now} {'register', 1} {'revalidate', 1} {'cold', 1} {'gone'}
-- Guards R5 (birth, tombstone), R12, R15 (dirty is pinned), R17

local ctl, hash = KEYS[1], KEYS[2]
local inc, delay = enter(ctl)
if not inc then return {'register', 1} end
local base, member = names(ctl, hash)
local problem = host_problem(base, string.sub(member, 2), inc, ARGV[1])
if problem == 'gone' then return {'gone'} end
if problem then return {problem, 1} end
local h = call('HMGET', hash, 'r', 'u', 'j')
local noted = math.max(rev_number(h[2]), rev_number(h[3] or ZERO))
if now() - noted >= tonumber(ARGV[3]) then
  local revision = next_digits(h[1])
  mark(base, member, hash, {'!'}, ARGV[2], delay)
  destroy_token(ctl, member)
  call('HSET', hash, 'r', revision, 'h', revision, 'j', rev_digits(now()))
end
return {'ok', string.format('%.0f', now())}
