#!lua flags=no-writes
-- include: prelude
-- Tells a revision at which a session may be born, if none lives under the id: its entries are written with it before (gather.lua).
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   token ('' none, '*' generated id, which needs none); largest revision that SQL knows
-- Reply  {'ok', revision} {'exists'} {'retry'}: the token is lost {'cold', 1} {'revalidate', 1} {'register', 1}; READONLY at a replica
-- Guards R3 (above what SQL knew, the tombstone and the temp: keys of the life before), R13; the script that creates checks all of it again

if at_replica() then return redis.error_reply(AT_REPLICA) end
local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local _, member = names(KEYS[1], KEYS[2])
local h = call('HMGET', KEYS[2], 'i', 'x', 'y', 'r', 'e')
if h[1] and (h[1] ~= inc or h[3]) then return {'revalidate', 1} end
if h[1] and not h[2] then return {'exists'} end
if not h[1] and ARGV[1] == '' then return {'cold', 1} end
if not h[1] and ARGV[1] ~= '*' and not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
local highest = rev_number(ARGV[2])
for i = 4, 5 do highest = math.max(highest, rev_number(h[i] or ZERO)) end
return {'ok', rev_digits(next_revision(highest))}
