#!lua flags=no-writes
-- include: prelude
-- Reads scopes in one atomic step, whole or some fields, and answers whether their time to live is to be renewed (keep.lua).
--
-- KEYS   per part: control of its bucket, hash of its scope (of a temp: part: the temp hash; the session's part is first then,
--        and before those of its namespaces)
-- ARGV   milliseconds a clean scope stays, milliseconds a temp hash lives; then per part: kind, birth ('' any),
--        version that the caller holds ('' none), number of keys (-1: all; -2: none, the scope revision only), keys
-- Reply  {'ok', {incarnation, field, value, ...} per part}: head fields 'r b c x f v h u t m k q' where they exist and '='..key;
--        1 in place of a part whose version, incarnation and scope revision, is the one held; 'renew' in place of 'ok'
--        where a time to live is to be renewed;
--        {'register', part} {'revalidate', part} {'cold', part...} {'gone'}; READONLY at a replica
-- Guards R5 (birth, tombstone; a namespace is of one life), R12 (wholly hot or cold), R15 (works while writes are refused), R17

-- What Lua would hold Redis up for long with, where plain commands bring it in a part of the time.
local large = false
local function is_large(hash)
  return call('HLEN', hash) > 2000 or tonumber(call('HGET', hash, 'z') or 0) > 262144
end

-- Fields and values behind the incarnation.
local function read(inc, hash, revision, count, at)
  if count == -2 then return {inc, 'r', revision} end
  local part, fields = {inc}, nil
  if (count == -1 or count > 16) and is_large(hash) then
    large = true
    return part
  end
  if count == -1 then
    fields = call('HGETALL', hash)
    for i = 1, #fields do part[i + 1] = fields[i] end
    return part
  end
  fields = {'r', 'b', 'c', 'v', 'u'}
  for j = 1, count do fields[5 + j] = '=' .. ARGV[at + j] end
  for i = 1, #fields, CHUNK do
    local last = math.min(i + CHUNK - 1, #fields)
    for j, value in ipairs(call('HMGET', hash, unpack(fields, i, last))) do
      if value then
        part[#part + 1] = fields[i + j - 1]
        part[#part + 1] = value
      end
    end
  end
  return part
end

local idle, temp_ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local reply, cold, birth, at = {'ok'}, {'cold'}, nil, 3

-- Whether less than `floor` is left of a time to live: only then it is written anew.
local function watch(key, floor)
  local left = call('PTTL', key)
  if left >= 0 and left < floor then reply[1] = 'renew' end
end

if at_replica() then return redis.error_reply(AT_REPLICA) end
for i = 1, #KEYS, 2 do
  local part, ctl, hash, kind, life, held = (i + 1) / 2, KEYS[i], KEYS[i + 1], ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local count = tonumber(ARGV[at + 3])
  local keys = at + 3
  at = keys + 1 + math.max(count, 0)
  local inc = enter(ctl)
  if not inc then return {'register', part} end
  if kind == 't' then
    local h = call('HMGET', hash, 'b', 'r')
    if h[1] ~= birth then reply[part + 1] = {inc}
    else
      watch(hash, temp_ttl - temp_ttl / 64)
      reply[part + 1] = held ~= '' and held == inc .. h[2] and 1 or read(inc, hash, h[2], count, keys)
    end
  else
    local h = call('HMGET', hash, 'i', 'b', 'x', 'y', 'r')
    if not h[1] or (kind == 'n' and h[2] ~= birth) then cold[#cold + 1] = part
    elseif h[1] ~= inc or h[4] then return {'revalidate', part}
    elseif kind == 's' and (h[3] or (life ~= '' and life ~= h[2])) then return {'gone'}
    else
      if kind == 's' then birth = h[2] end
      watch(hash, idle / 2)
      reply[part + 1] = held ~= '' and held == inc .. h[5] and 1 or read(inc, hash, h[5], count, keys)
    end
  end
end
if #cold > 1 then return cold end
if large then return {'large'} end
return reply
