#!lua flags=allow-oom
-- include: prelude
-- Marks a whole scope as dirty: SQL may have forgotten any of it (a restored backup).
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   parents (see mark)
-- Reply  {'ok', marks} {'absent'} {'register', 1}
-- Guards R18 (everything hot is flushed again), R11 (what was flushed before is no evidence any more)

local ctl, hash = KEYS[1], KEYS[2]
local inc, delay = enter(ctl)
if not inc then return {'register', 1} end
if call('EXISTS', hash) == 0 then return {'absent'} end
local base, member = names(ctl, hash)
local fields = {}
if #ARGV[1] > 32 then fields[1] = '!' end
for _, field in ipairs(call('HKEYS', hash)) do
  if string.sub(field, 1, 1) == '=' then fields[#fields + 1] = field end
end
if #fields > 0 then mark(base, member, hash, fields, ARGV[1], delay) end
call('HSET', hash, 'i', inc)
call('HDEL', hash, 'f', 'p', 'y')
return {'ok', #fields}
