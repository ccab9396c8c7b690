#!lua flags=allow-oom
-- include: prelude
-- Drops what an erased user left behind in Redis, once SQL knows that it is dead.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the scope revision that SQL knows, parents (see mark)
-- Reply  {'ok', whether it was dropped}: not what has been written since
-- Guards R14 (a tombstone goes only when SQL has it)

local base, member = names(KEYS[1], KEYS[2])
local revision = call('HGET', KEYS[2], 'r')
if not revision or rev_number(revision) > rev_number(ARGV[1]) then return {'ok', 0} end
drop_scope(KEYS[1], base, member)
if #ARGV[2] > 32 then leave_unflushed(base, member, ARGV[2]) end
return {'ok', 1}
