#!lua flags=allow-oom
-- include: prelude
-- Revalidates a hash: brings together what Redis still has of a scope and what SQL has.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds a clean scope stays, milliseconds a clean tombstone stays, parents (see mark),
--        largest revision that SQL knows, SQL's head: '' or its birth, then last cleared, deleted ('1' or ''), updated,
--        number of head fields and their names and values, then SQL's entries: field, revision and text (no text: deleted)
-- Reply  {'ok', marks left} {'retry'} (the token is lost) {'register', 1}
-- Guards R17: what SQL has and the hash lacks or has older comes from SQL; a mark of an older incarnation stays only where
--        SQL's row is smaller; what was written in this incarnation and SQL refuses is stamped above SQL; birth never changes

local ctl, hash = KEYS[1], KEYS[2]
local inc, delay = enter(ctl)
if not inc then return {'register', 1} end
local base, member = names(ctl, hash)
if not holds_token(ctl, member, inc, ARGV[1]) then return {'retry'} end
local h = call('HMGET', hash, 'i', 'r', 'b', 'c', 'x', 'h', 'u', 'y')
if not h[1] or (h[1] == inc and not h[8]) then return {'retry'} end
destroy_token(ctl, member)

local own = h[1] == inc
local dirty = base .. 'd:' .. member
local birth, cleared, deleted = rev_number(h[3] or ZERO), rev_number(h[4] or ZERO), h[5]
local top = math.max(rev_number(h[2]), rev_number(ARGV[5]))
local marked, unmark, fields, gone = {}, {}, {}, {}
for _, field in ipairs(call('SMEMBERS', dirty)) do marked[field] = true end

local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end

-- The head.
local last = 11
local sql = ARGV[6] ~= '' and {birth = rev_number(ARGV[6]), cleared = rev_number(ARGV[7]), deleted = ARGV[8] == '1',
                               updated = rev_number(ARGV[9])}
local head_fields = tonumber(ARGV[10])
local took_head, replaced = false, false
local function take_head()
  took_head = #ARGV[4] > 32
  for i = 0, head_fields - 1 do set(ARGV[last + 2 * i], ARGV[last + 2 * i + 1]) end
end
local life = deleted and cleared or birth
local sql_life = sql and (sql.deleted and sql.cleared or sql.birth) or -1
if marked['!'] and own then
  top = top + 1
  set('h', rev_digits(top))
  if deleted then
    cleared = top
    set('c', rev_digits(cleared))
    set('x', rev_digits(cleared))
  end
elseif sql_life > life then
  take_head()
  call('DEL', base .. 'temp:' .. string.sub(member, 2)) -- R5, R16: temp: keys die with their life
  birth, cleared, deleted = sql.birth, sql.cleared, sql.deleted and ARGV[7] or nil
  if deleted then set('x', deleted) else gone[#gone + 1] = 'x' end
  unmark[#unmark + 1] = '!'
elseif sql and sql_life == life and sql.updated >= rev_number(h[7] or ZERO) and sql.cleared >= cleared then
  if not deleted then take_head() end
  unmark[#unmark + 1] = '!'
end

if sql and sql_life == life and not deleted and sql.cleared > cleared then
  cleared = sql.cleared
  set('c', ARGV[7])
end

-- The entries.
local entries = {}
for i, name in ipairs(call('HGETALL', hash)) do
  if i % 2 == 1 and string.sub(name, 1, 1) == '=' then entries[name] = {hot = true} end
end
local rows = {}
for i = last + 2 * head_fields, #ARGV, 2 do
  rows[ARGV[i]] = ARGV[i + 1]
  entries[ARGV[i]] = entries[ARGV[i]] or {}
end
for name in pairs(marked) do -- a mark whose field is nowhere goes too
  if name ~= '!' then entries[name] = entries[name] or {} end
end
local n, z = 0, 0
for name, entry in pairs(entries) do
  local value = entry.hot and call('HGET', hash, name) or nil
  local row = rows[name]
  local mine = own and marked[name]
  if row and rev_number(row) <= cleared then row = nil end
  if value and rev_number(value) <= cleared and not mine then
    replaced = replaced or rev_number(value) > rev_number(h[4] or ZERO)
    value = nil
  end
  if deleted then value, row = nil, nil end
  local keep = value
  if value and mine then
    top = top + 1
    keep = rev_digits(top) .. string.sub(value, 10)
  elseif row and (not value or rev_number(row) >= rev_number(value)) then
    keep = #row > 9 and row or nil
    unmark[#unmark + 1] = name
    replaced = replaced or keep ~= (value or nil)
  end
  if keep then
    set(name, keep)
    if #keep > 9 then
      n = n + 1
      z = z + json_size(keep, 10)
    end
  else
    gone[#gone + 1] = name
    unmark[#unmark + 1] = name
  end
end

in_chunks('SREM', dirty, unmark)
if call('EXISTS', base .. 'dead') == 1 then -- R10: what SQL has settled needs no letter
  for i, name in ipairs(unmark) do unmark[i] = member .. name end
  in_chunks('HDEL', base .. 'dead', unmark)
end
local left = call('SCARD', dirty)
if left > 0 then
  call('ZADD', base .. 'dirty', 'NX', now(), member)
  call('ZADD', base .. 'since', 'NX', now(), member)
  call('PERSIST', hash)
end
set('i', inc)
if own then -- whoever holds the scope as it was sees that it is another, also once it was read from SQL, which knows no better
  top = top + 1
  call('HSET', ctl, 'm:' .. member, rev_digits(top))
end
if #ARGV[4] > 32 then set('l', rev_digits(next_revision(top))) end -- never the birth: SQL may know of namespaces
set('r', rev_digits(top))
if replaced and not took_head then set('v', rev_digits(top)) end -- R2: whoever relies on the values as they were is told
set('n', n)
set('z', z)
in_chunks('HSET', hash, fields)
gone[#gone + 1] = 'y'
in_chunks('HDEL', hash, gone)
if #ARGV[4] > 32 and call('SISMEMBER', dirty, '!') == 0 then leave_unflushed(base, member, ARGV[4]) end
announce(base .. 'w:' .. member, '?', rev_digits(top), h[2], inc, {})
if left == 0 then
  call('ZREM', base .. 'dirty', member)
  call('ZREM', base .. 'since', member)
  call('HDEL', ctl, 'c:' .. member)
  unpin(base, member, hash, deleted and ARGV[3] or ARGV[2])
end
return {'ok', left}
