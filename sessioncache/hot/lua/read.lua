#!lua flags=allow-oom
-- include: prelude
-- Reads scopes in one atomic step, whole or some fields, and renews their time to live.
--
-- KEYS   per part: control of its bucket, hash of its scope (of a temp: part: the temp hash; the session's part is first then,
--        and before those of its namespaces)
-- ARGV   milliseconds a clean scope stays, milliseconds a temp hash lives; then per part: kind, birth ('' any),
--        number of keys (-1: all), keys
-- Reply  {'ok', {incarnation, field, value, ...} per part}: head fields 'r b c x f v h u t m k q' where they exist and '='..key
--        {'register', part} {'revalidate', part} {'cold', part...} {'gone'}
-- Guards R5 (birth, tombstone; a namespace is of one life), R12 (wholly hot or cold), R15 (EXPIRE XX: dirty hashes stay pinned), R17

-- R15: never gives a TTL to a hash that has none; and writes nothing while more than `floor` is left.
-- `ctl`: of a user's scope; what was read of an erased user stays no longer than nothing new is let in (install.lua).
local function renew(key, ttl, floor, ctl)
  local left = call('PTTL', key)
  if left < 0 or left >= floor then return end
  if ctl then
    local base, member = names(ctl, key)
    if erased_until(base, string.sub(member, 2)) then return end
  end
  call('PEXPIRE', key, ttl, 'XX')
end

local function read(hash, keys)
  if not keys then return call('HGETALL', hash) end
  local fields = {'r', 'b', 'c', 'v', 'u'}
  for _, key in ipairs(keys) do fields[#fields + 1] = '=' .. key end
  local pairs_ = {}
  for i = 1, #fields, CHUNK do
    local last = math.min(i + CHUNK - 1, #fields)
    for j, value in ipairs(call('HMGET', hash, unpack(fields, i, last))) do
      if value then
        pairs_[#pairs_ + 1] = fields[i + j - 1]
        pairs_[#pairs_ + 1] = value
      end
    end
  end
  return pairs_
end

local idle, temp_ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local reply, cold, birth, at = {'ok'}, {'cold'}, nil, 3
for i = 1, #KEYS / 2 do
  local ctl, hash, kind, wanted, count = KEYS[2 * i - 1], KEYS[2 * i], ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local keys = nil
  if count >= 0 then
    keys = {}
    for j = 1, count do keys[j] = ARGV[at + 2 + j] end
  end
  at = at + 3 + math.max(count, 0)
  local inc = enter(ctl)
  if not inc then return {'register', i} end
  if kind == 't' then
    local part = {}
    if call('HGET', hash, 'b') == birth then
      renew(hash, temp_ttl, temp_ttl - 1000)
      part = read(hash, keys)
    end
    table.insert(part, 1, inc)
    reply[i + 1] = part
  else
    local h = call('HMGET', hash, 'i', 'b', 'x', 'y')
    if not h[1] or (kind == 'n' and h[2] ~= birth) then cold[#cold + 1] = i
    elseif h[1] ~= inc or h[4] then return {'revalidate', i}
    elseif kind == 's' and (h[3] or (wanted ~= '' and wanted ~= h[2])) then return {'gone'}
    else
      if kind == 's' then birth = h[2] end
      renew(hash, idle, idle / 2, kind == 'u' and ctl)
      local part = read(hash, keys)
      table.insert(part, 1, inc)
      reply[i + 1] = part
    end
  end
end
if #cold > 1 then return cold end
return reply
