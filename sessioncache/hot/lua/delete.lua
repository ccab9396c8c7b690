#!lua flags=allow-oom
-- include: prelude
-- Deletes a session: leaves a tombstone, at once for every process.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   birth ('' any life), parents (see mark)
-- Reply  {'ok', existed, revision, incarnation, flushed through}; {'register', 1} {'revalidate', 1} {'cold', 1} {'gone'}
-- Guards R1 (mark first), R5 (birth), R14 (tombstone, last cleared), R15 (works when memory is full), R16 (temp: dies with it)

local ctl, hash = KEYS[1], KEYS[2]
local inc, delay = enter(ctl)
if not inc then return {'register', 1} end
local h = call('HMGET', hash, 'i', 'r', 'b', 'x', 'f')
if not h[1] then return {'cold', 1} end
if h[1] ~= inc then return {'revalidate', 1} end
if ARGV[1] ~= '' and (h[4] or ARGV[1] ~= h[3]) then return {'gone'} end
if h[4] then return {'ok', 0, h[2], inc, h[5] or ZERO} end

local base, member = names(ctl, hash)
local revision = rev_digits(next_revision(rev_number(h[2])))
mark(base, member, hash, {'!'}, ARGV[2], delay)
destroy_token(ctl, member)
call('HSET', hash, 'x', revision, 'c', revision, 'r', revision, 'v', revision, 'h', revision, 'u', revision, 'n', 0, 'z', 0)
local dead = {}
for _, field in ipairs(call('HKEYS', hash)) do
  if string.sub(field, 1, 1) == '=' then dead[#dead + 1] = field end
end
in_chunks('HDEL', hash, dead)
call('DEL', base .. 'temp:' .. string.sub(member, 2))
return {'ok', 1, revision, inc, h[5] or ZERO}
