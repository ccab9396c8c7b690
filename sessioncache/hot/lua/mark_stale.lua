#!lua flags=allow-oom
-- include: prelude
-- Flags a scope to be compared with SQL by whoever touches it next, or by a worker: until then it is pinned like a dirty one.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the scope revision that was found: only if it is still as it was, and clean; '': in any case
-- Reply  {'ok', whether it was flagged}
-- Guards R17 (revalidation), R18, R15 (pinned by a mark that stands for no field), R12 (an absent scope stays absent)

local base, member = names(KEYS[1], KEYS[2])
local h = call('HMGET', KEYS[2], 'r', 'd')
local as_found = h[1] == ARGV[1] and call('SCARD', base .. 'd:' .. member) == 0
if not h[1] or (ARGV[1] ~= '' and not as_found) then return {'ok', 0} end
mark(base, member, KEYS[2], {'?'}, h[2] or '', 0)
call('HSET', KEYS[2], 'y', '1')
return {'ok', 1}
