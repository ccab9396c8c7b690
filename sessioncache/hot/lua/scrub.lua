#!lua flags=allow-oom
-- include: prelude
-- Drops what nobody can reach any more: what an erased user left behind, once SQL knows that it is dead; a namespace of
-- which the session is in another life, or nowhere; one of a living session that is given up for what SQL has.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the scope revision that SQL knows, parents (see mark), milliseconds a clean scope stays, '1': also a
--        namespace of a living session
-- Reply  {'ok', whether it is gone}: not what has been written since
-- Guards R5, R14 (a tombstone goes only when SQL has it)

local base, member = names(KEYS[1], KEYS[2])
local h = call('HMGET', KEYS[2], 'r', 'd', 'b')
if not h[1] then return {'ok', 1} end
if rev_number(h[1]) > rev_number(ARGV[1]) then return {'ok', 0} end
local problem = h[2] and host_problem(base, h[2], enter(KEYS[1]), h[3])
if h[2] and ARGV[4] ~= '1' and problem ~= 'gone' and problem ~= 'cold' then return {'ok', 0} end
if string.byte(member) == 115 then
  for _, space in ipairs(call('SMEMBERS', base .. 'ns:' .. string.sub(member, 2))) do drop_scope(KEYS[1], base, space, 0) end
end
drop_scope(KEYS[1], base, member, ARGV[3])
if #ARGV[2] > 32 then leave_unflushed(base, member, ARGV[2]) end
return {'ok', 1}
