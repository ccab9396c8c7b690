-- Shared by write.lua, create.lua and touch.lua: parts (one scope of a call each), checked first, applied only when all are fine.

-- ARGV[1..4]: most keys and most bytes of a scope, most bytes of a value, seconds a temp hash lives
local LIMIT_KEYS, LIMIT_BYTES, LIMIT_VALUE, TEMP_TTL = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
-- ARGV[5..7]: operation id ('' none), incarnation under which it may be applied, microseconds for which it is remembered
local OPERATION, UNDER, LIFETIME = ARGV[5], ARGV[6], tonumber(ARGV[7])
-- ARGV[8]: token of the run lease that the writer must hold ('' none)
local LEASE = ARGV[8]
local highest = 0 -- the largest revision of all parts

-- ARGV of one part: kind, birth ('' any life, '+' a new one), if_revision, parents, number of operations, then per operation: code, key, text, expected.
local function parse_parts(first)
  local parts, at = {}, first
  for i = 1, #KEYS / 2 do
    local p = {ctl = KEYS[2 * i - 1], hash = KEYS[2 * i], kind = ARGV[at], birth = ARGV[at + 1], if_revision = ARGV[at + 2],
               parents = ARGV[at + 3], first = at + 5, count = tonumber(ARGV[at + 4]),
               values = {}, marks = {}, results = {}, dropped = {}}
    p.base, p.member = names(p.ctl, p.hash)
    at = at + 5 + 4 * p.count
    parts[i] = p
  end
  return parts
end

local function load_temp(p, session)
  local h = call('HMGET', p.hash, 'b', 'r', 'n', 'z')
  p.fresh = h[1] ~= session.birth
  if p.fresh then h = {} end
  p.r, p.cleared, p.n, p.z, p.f = h[2] or ZERO, 0, tonumber(h[3] or 0), tonumber(h[4] or 0), ZERO
end

-- Reads a part's head; returns 'cold', 'revalidate', 'gone' or 'stale' where it cannot be written to.
local function load_scope(p, session)
  local h = call('HMGET', p.hash, 'i', 'r', 'b', 'c', 'x', 'f', 'n', 'z', 'v', 'y')
  if not h[1] then return 'cold' end
  if p.kind == 'n' and h[3] ~= session.b then return 'cold' end -- of another life of its session
  if h[1] ~= p.inc or h[10] then return 'revalidate' end
  p.r, p.b, p.deleted, p.f, p.n, p.z = h[2], h[3], h[5], h[6] or ZERO, tonumber(h[7]), tonumber(h[8])
  p.v, p.had = h[9] or h[2], p.n
  p.cleared = h[4] and rev_number(h[4]) or 0
  if p.kind == 's' and p.birth ~= '+' and (p.deleted or (p.birth ~= '' and h[3] ~= p.birth)) then return 'gone' end -- R5
  if p.if_revision ~= '' and p.if_revision ~= p.v then return 'stale' end
end

-- The text and revision of a living entry.
local function living(p, field)
  local e = not p.fresh and call('HGET', p.hash, field)
  if not e or #e == 9 or rev_number(e) <= p.cleared then return nil, '' end
  return string.sub(e, 10), string.sub(e, 1, 9)
end

-- Both numbers are whole and have at most 15 digits: what Lua adds exactly.
local function add(text, by)
  local function small(t) return string.match(t, '^%-?%d+$') and #t <= 15 end
  if not small(text) or not small(by) then return nil end
  return string.format('%.0f', tonumber(text) + tonumber(by))
end

local function put(p, field, text, old)
  p.z = p.z + json_size(text) - (old and json_size(old) or 0)
  p.n = p.n + (old and 0 or 1)
  p.values[#p.values + 1] = field
  p.values[#p.values + 1] = text
  p.marks[#p.marks + 1] = field
end

local function drop(p, field, old)
  p.z = p.z - json_size(old)
  p.n = p.n - 1
  p.marks[#p.marks + 1] = field
  if p.kind == 't' then p.dropped[#p.dropped + 1] = field
  else
    p.values[#p.values + 1] = field
    p.values[#p.values + 1] = '' -- R14: a tombstone
  end
end

-- Drops every living entry; their number.
local function clear(p)
  local all = call('HGETALL', p.hash)
  local n = p.n
  for i = 1, #all, 2 do
    local e = all[i + 1]
    if string.sub(all[i], 1, 1) == '=' and #e > 9 and rev_number(e) > p.cleared then drop(p, all[i], string.sub(e, 10)) end
  end
  return n - p.n
end

-- Whether an entry is of a later time than a text that bears a date: its own date, else its revision.  Digit by digit, since
-- a number is exact until 2255 only.
local function is_later(old, revision, text)
  local mine = date_length(old) > 0 and string.sub(old, 2, 10) or revision
  for i = 1, 9 do
    local there, given = string.byte(mine, i), string.byte(text, i + 1)
    if there ~= given then return there > given end
  end
  return false
end

-- One operation: S set, D delete, I increment, A append, only where the entry has the expected revision ('*' any, '' absent);
-- R sets what bears a date unless the entry is of a later time; C clears the scope.
-- Returns a refusal, or nil after noting what is to be done.
local function operate(p, number, code, key, text, expected)
  if code == 'C' then
    p.results[number] = clear(p)
    return nil
  end
  local field = '=' .. key
  local old, revision = living(p, field)
  if expected ~= '*' and expected ~= revision then return {'stale'} end
  local result = ''
  if code == 'D' then
    result = old and 1 or 0
    if old then drop(p, field, old) end
  elseif code == 'R' and old and is_later(old, revision, text) then
    result = 0
  else
    local json = old and (code == 'I' or code == 'A') and string.sub(old, date_length(old) + 1)
    if code == 'I' and old then
      local sum = add(json, text)
      if not sum then return {'compute', json, revision} end
      text = sum
    elseif code == 'A' then
      if old and string.sub(json, 1, 1) ~= '[' then return {'mismatch'} end
      if old and text == '' then text = json
      elseif old and json ~= '[]' then text = string.sub(json, 1, -2) .. ',' .. text .. ']'
      else text = '[' .. text .. ']' end
    end
    if json_size(text) > LIMIT_VALUE then return {'limit', 'value'} end
    put(p, field, text, old)
    if code == 'R' then result = 1
    elseif code ~= 'S' then result = text end
  end
  p.results[number] = result
end

-- R4: a call with an operation id is applied once, and only under the incarnation that its sender knew.
local function applied_before(first)
  local inc, _, ops = enter(first.ctl)
  if not inc then return {'register', 1} end
  first.ops = ops
  if OPERATION == '' then return nil end
  if inc ~= UNDER then return {'incarnation', inc} end
  return recall(first.base, OPERATION)
end

-- R4: a call that was refused is over, too: a copy of it that comes late must not find things more to its liking.
local function refuse(first, refusal)
  local told = refusal
  if refusal[1] == 'stale' then call('HINCRBY', first.ctl, 'conflicts', 1) end
  if refusal[1] == 'compute' then told = {'stale', refusal[2], refusal[3]} end -- the client reads and computes anew
  remember(first.ctl, first.base, OPERATION, first.ops, LIFETIME, told)
  return refusal
end

-- R1: nothing is written before every part has been checked.  Returns the refusal to reply with, or nil.
local function check_parts(parts)
  local cold, stale = {'cold'}, {'stale'}
  for i, p in ipairs(parts) do
    if p.kind == 't' then p.inc, p.delay = parts[1].inc, parts[1].delay
    else p.inc, p.delay = enter(p.ctl) end
    if not p.inc then return {'register', i} end
    local problem
    if p.kind == 't' then load_temp(p, parts[1])
    elseif not p.loaded then problem = load_scope(p, parts[1]) end
    if not problem and p.kind == 'u' and erased_until(p.base, string.sub(p.member, 2)) then problem = 'erased' end
    if problem == 'cold' then cold[#cold + 1] = i
    elseif problem == 'revalidate' then return {problem, i}
    elseif problem then return {problem} end
  end
  if #cold > 1 then return cold end
  if LEASE ~= '' then
    local token, left = lease_of(parts[1].ctl, parts[1].member, parts[1].inc, parts[1].b)
    if token ~= LEASE or left <= 0 then return {'lease'} end
  end
  for i, p in ipairs(parts) do
    for j = 1, p.count do
      local at = p.first + 4 * (j - 1)
      local refusal = operate(p, j, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
      if refusal and refusal[1] ~= 'stale' then return {refusal[1], i, j, refusal[2], refusal[3]} end
      if refusal then
        stale[#stale + 1] = i
        stale[#stale + 1] = j
      end
    end
    if p.n > LIMIT_KEYS then return {'limit', i, 0, 'keys'} end
    if p.z > LIMIT_BYTES then return {'limit', i, 0, 'bytes'} end
    highest = math.max(highest, rev_number(p.r))
  end
  if #stale > 1 then return stale end
end

local function write_temp(p, revision, session)
  if p.fresh then call('DEL', p.hash) end
  local head = {'b', session.birth, 'r', revision, 'n', p.n, 'z', p.z}
  for i = 1, #p.values, 2 do
    head[#head + 1] = p.values[i]
    head[#head + 1] = revision .. p.values[i + 1]
  end
  in_chunks('HSET', p.hash, head)
  if #p.dropped > 0 then in_chunks('HDEL', p.hash, p.dropped) end
  call('EXPIRE', p.hash, TEMP_TTL)
  announce(p.base .. 'w:' .. session.member, 't', revision, ZERO, session.inc, p.marks)
end

-- Marks, then values with their revision, then `head` (pairs of head fields besides r, v, n, z).
local function write_scope(p, revision, head)
  if p.kind == 's' then p.marks[#p.marks + 1] = '!' end
  mark(p.base, p.member, p.hash, p.marks, p.parents, p.delay)
  destroy_token(p.ctl, p.member)
  for i = 2, #p.values, 2 do p.values[i] = revision .. p.values[i] end
  local values = p.values
  for _, x in ipairs({'r', revision, 'v', revision, 'n', p.n, 'z', p.z}) do values[#values + 1] = x end
  for _, x in ipairs(head) do values[#values + 1] = x end
  in_chunks('HSET', p.hash, values)
  announce(p.base .. 'w:' .. p.member, 'w', revision, p.v or ZERO, p.inc, p.marks)
end

-- The head of a session of which no key of its own was written.
local function write_head(p, revision, head)
  mark(p.base, p.member, p.hash, {'!'}, p.parents, p.delay)
  destroy_token(p.ctl, p.member)
  call('HSET', p.hash, 'r', revision, 'h', revision, 'u', revision, unpack(head))
end

-- The reply: 'ok', the revision of the call, then per part: incarnation, flushed through, changed, results, revision until now.
-- What is remembered of it holds no value, nor the last.
local function report(parts, revision)
  local reply, told = {'ok', revision}, {'ok', revision}
  for i, p in ipairs(parts) do
    local results = {}
    for j, result in ipairs(p.results) do results[j] = type(result) == 'string' and '' or result end
    reply[i + 2] = {p.inc, p.f, p.changed and 1 or 0, p.results, p.r}
    told[i + 2] = {p.inc, p.f, p.changed and 1 or 0, results}
  end
  remember(parts[1].ctl, parts[1].base, OPERATION, parts[1].ops, LIFETIME, told)
  return reply
end

-- R4: the reply to a call that came before; its results are those of then only where nobody has written since.
local function reply_again(parts, reply)
  if reply[1] ~= 'ok' then return reply end
  for i, p in ipairs(parts) do
    for j = 1, p.count do
      local at = p.first + 4 * (j - 1)
      if ARGV[at] == 'I' or ARGV[at] == 'A' then
        local e = call('HGET', p.hash, '=' .. ARGV[at + 1])
        if not e or string.sub(e, 1, 9) ~= reply[2] then return {'applied'} end
        reply[i + 2][4][j] = string.sub(e, 10)
      end
    end
  end
  return reply
end
