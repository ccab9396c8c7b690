#!lua flags=allow-oom
-- include: prelude
-- Flags a scope to be compared with SQL by whoever touches it next, if it is still as it was found and clean.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the scope revision that was found
-- Reply  {'ok', whether it was flagged}
-- Guards R17 (revalidation), R12 (an absent scope stays absent)

local base, member = names(KEYS[1], KEYS[2])
if call('HGET', KEYS[2], 'r') ~= ARGV[1] or call('SCARD', base .. 'd:' .. member) > 0 then return {'ok', 0} end
call('HSET', KEYS[2], 'y', '1')
return {'ok', 1}
