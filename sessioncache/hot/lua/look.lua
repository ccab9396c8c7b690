#!lua flags=no-writes
-- include: prelude
-- Tells what a hash holds that is to be revalidated, a part at a time: of entries the revision and the size, not the value.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, number of entries that were told before
-- Reply  {'ok', number of entries told by now, of all entries, microseconds now, {value or false per field of NAMES}, {mark, ...},
--        {field, revision and bytes of JSON (none: deleted), ...}}; marks come with the first part only
--        {'retry'} (the token is lost) {'register', 1}
-- Guards R17, R13 (under the token), and that no script takes long: a part holds 1,000 entries and half a MiB at most, and one more

local MOST, BYTES = 1000, 524288
local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end

local NAMES = {'i', 'y', 'r', 'b', 'c', 'x', 'f', 'p', 'v', 'h', 'u', 'n', 'z'}
local h = call('HMGET', KEYS[2], unpack(NAMES))
local told, fields = tonumber(ARGV[2]), {}
for _, name in ipairs(call('HKEYS', KEYS[2])) do
  if string.sub(name, 1, 1) == '=' then fields[#fields + 1] = name end
end
local last = math.min(told + MOST, #fields)
local few = tonumber(h[13] or 0) <= BYTES
local values = few and last > told and call('HMGET', KEYS[2], unpack(fields, told + 1, last))
local entries, bytes, at = {}, 0, told
while at < last and bytes < BYTES do
  local value = few and values[at - told + 1] or call('HGET', KEYS[2], fields[at + 1])
  if not few then bytes = bytes + #value end
  at = at + 1
  entries[#entries + 1] = fields[at]
  entries[#entries + 1] = #value > 9 and string.sub(value, 1, 9) .. json_size(value, 10) or value
end
local marks = told == 0 and call('SMEMBERS', base .. 'd:' .. member) or {}
return {'ok', at, #fields, string.format('%.0f', now()), h, marks, entries}
