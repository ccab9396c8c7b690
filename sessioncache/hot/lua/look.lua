#!lua flags=no-writes
-- include: prelude
-- Tells what hashes hold that are to be revalidated, a part at a time: of entries the revision and the size, not the value.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   number of entries of each that were returned before, then a token per scope
-- Reply  per scope: {'ok', number of entries returned by now, of all entries, microseconds now, {value or false per field of NAMES},
--        {mark, ...}, {field, revision and bytes of JSON (none: deleted), ...}}; marks come with the first part only
--        {'later'}: enough was returned already; ask again.  {'retry'} (the token is lost) {'register', 1}
-- Guards R17, R13 (under the token), and that no script takes long: a part holds 1,000 entries and half a MiB at most, and one
--        more, and no scope is begun after as many

local MOST, BYTES = 1000, 524288
local ctl = KEYS[1]
local inc = enter(ctl)
local NAMES = {'i', 'y', 'r', 'b', 'c', 'x', 'f', 'p', 'v', 'h', 'u', 'n', 'z'}
local before, told, spent = tonumber(ARGV[1]), 0, 0

local function look(hash, token)
  local base, member = names(ctl, hash)
  if not holds_token(ctl, member, inc, token) then return {'retry'} end
  local h, fields = call('HMGET', hash, unpack(NAMES)), {}
  for _, name in ipairs(call('HKEYS', hash)) do
    if string.sub(name, 1, 1) == '=' then fields[#fields + 1] = name end
  end
  local last, size = math.min(before + MOST, #fields), tonumber(h[13] or 0)
  local few = size <= BYTES
  local values = few and last > before and call('HMGET', hash, unpack(fields, before + 1, last))
  local entries, bytes, at = {}, 0, before
  while at < last and bytes < BYTES do
    local value = few and values[at - before + 1] or call('HGET', hash, fields[at + 1])
    if not few then bytes = bytes + #value end
    at = at + 1
    entries[#entries + 1] = fields[at]
    entries[#entries + 1] = #value > 9 and string.sub(value, 1, 9) .. json_size(value, 10) or value
  end
  told, spent = told + at - before, spent + (few and size or bytes)
  local marks = before == 0 and call('SMEMBERS', base .. 'd:' .. member) or {}
  return {'ok', at, #fields, string.format('%.0f', now()), h, marks, entries}
end

local replies = {}
for i = 2, #KEYS do
  replies[i - 1] = not inc and {'register', 1} or told < MOST and spent < BYTES and look(KEYS[i], ARGV[i]) or {'later'}
end
return replies
