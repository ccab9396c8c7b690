#!lua flags=allow-oom
-- include: prelude
-- Carries out one step of a revalidation: what was made of what the hash holds and of what SQL has (reconciling.py).
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds after which another may take over, scope revision as it was found or as the step before
--        left it, scope revision from now on, revision that entries are stamped with, id of a namespace's session ('' else),
--        '1' in the last step, numbers of what follows: fields and values to be set, fields to be stamped, fields to be
--        dropped, marks to be set, marks to be taken away; then these.  In the last step also: milliseconds a clean scope
--        stays, milliseconds a clean tombstone stays, parents (see mark), whether ('1') the head is marked, values were
--        replaced, a new life has begun, flushed through ('' forget it), purged, then head fields and values (x '': it goes)
-- Reply  {'ok', marks left} {'retry'} (the token is lost, or the hash was changed) {'register', 1}
-- Guards R17, R13 (the token), R1 (marks first); a hash that is half done is to be revalidated still, and may be begun anew

local ctl, hash = KEYS[1], KEYS[2]
local inc = enter(ctl)
if not inc then return {'register', 1} end
local base, member = names(ctl, hash)
if not holds_token(ctl, member, inc, ARGV[1]) then return {'retry'} end
local h = call('HMGET', hash, 'i', 'y', 'r', 'f', 'p', 'l')
if not h[1] or (h[1] == inc and not h[2]) or h[3] ~= ARGV[3] then return {'retry'} end

local revision, stamp, holder, is_last, dirty = ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1', base .. 'd:' .. member
local at = 13
local function take(count)
  local part = {}
  for i = 1, count do part[i] = ARGV[at + i - 1] end
  at = at + count
  return part
end
local sets, stamps, gone, marks, unmarks = take(2 * tonumber(ARGV[8])), take(tonumber(ARGV[9])), take(tonumber(ARGV[10])),
  take(tonumber(ARGV[11])), take(tonumber(ARGV[12]))

if #marks > 0 then mark(base, member, hash, marks, holder, 0) end
for _, field in ipairs(stamps) do
  local value = call('HGET', hash, field)
  if value then call('HSET', hash, field, stamp .. string.sub(value, 10)) end
end
in_chunks('HSET', hash, sets)
in_chunks('HDEL', hash, gone)
in_chunks('SREM', dirty, unmarks)
if #unmarks > 0 and call('EXISTS', base .. 'dead') == 1 then -- R10: what SQL has settled needs no dead letter
  local letters = {}
  for i, name in ipairs(unmarks) do letters[i] = member .. name end
  in_chunks('HDEL', base .. 'dead', letters)
end
call('HSET', hash, 'r', revision)
if not is_last then
  call('HSET', ctl, 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
  return {'ok', call('SCARD', dirty)}
end

local idle, buried, parents, head_is_dirty, is_replaced, is_new, flushed, purged = unpack(take(8))
destroy_token(ctl, member)
if head_is_dirty == '1' then mark(base, member, hash, {'!'}, parents, 0)
elseif call('SISMEMBER', dirty, '!') == 0 then leave_unflushed(base, member, parents) end
if is_new == '1' then call('UNLINK', base .. 'temp:' .. string.sub(member, 2)) end -- R5, R16: temp: keys die with their life
local fields, without = {'i', inc}, {'y'}
for i = at, #ARGV, 2 do
  if ARGV[i] == 'x' and ARGV[i + 1] == '' then without[#without + 1] = 'x'
  else
    fields[#fields + 1] = ARGV[i]
    fields[#fields + 1] = ARGV[i + 1]
  end
end
if is_above(purged, h[5] or ZERO) then
  fields[#fields + 1] = 'p'
  fields[#fields + 1] = purged
end
if flushed == '' then without[#without + 1] = 'f'
elseif is_above(flushed, h[4] or ZERO) then
  fields[#fields + 1] = 'f'
  fields[#fields + 1] = flushed
end
if is_replaced == '1' then -- R2: whoever relies on the values as they were is refused
  fields[#fields + 1] = 'v'
  fields[#fields + 1] = revision
end
if #parents == 160 then -- never the birth: SQL may know of namespaces
  fields[#fields + 1] = 'l'
  fields[#fields + 1] = rev_digits(next_revision(math.max(rev_number(revision), rev_number(h[6] or ZERO))))
end
call('HSET', hash, unpack(fields))
call('HDEL', hash, unpack(without))
announce(base .. 'w:' .. member, '?', revision, ARGV[3], inc, {})
local left = call('SCARD', dirty)
if left > 0 then
  call('ZADD', base .. 'dirty', 'NX', string.format('%.0f', now()), member)
  call('ZADD', base .. 'since', 'NX', string.format('%.0f', now()), member)
  call('PERSIST', hash)
else
  call('ZREM', base .. 'dirty', member)
  call('ZREM', base .. 'since', member)
  call('HDEL', ctl, 'c:' .. member)
  unpin(base, member, hash, call('HEXISTS', hash, 'x') == 1 and buried or idle)
end
return {'ok', left}
