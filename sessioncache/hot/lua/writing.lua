-- Shared by write.lua, create.lua, touch.lua and fork.lua: parts (one scope of a call each), checked first, applied only when all are
-- fine.  Each call makes all functions here anew, and whatever a table or text is made of: there are few, for the sake of speed.

-- ARGV[1..4]: most keys and most bytes of a scope, most bytes of a value, seconds a temp hash lives
local LIMIT_KEYS, LIMIT_BYTES, LIMIT_VALUE, TEMP_TTL = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
-- ARGV[5..7]: idempotency key ('' none), incarnation under which it may be applied, microseconds for which it is remembered
local OPERATION, UNDER, LIFETIME = ARGV[5], ARGV[6], tonumber(ARGV[7])
-- ARGV[8]: token of the run lease that the writer must hold ('' none)
local LEASE = ARGV[8]
local MOST_REPLACED = 4194304 -- bytes of values of a scope that a call reads to replace them: MAX_REPLACED_BYTES
local FEW = 4 -- values that are within, whatever each of them has
local SMALL = 32 -- most bytes of a number that is remembered with the call that led to it
local HEAD = 10 -- head fields in what is `stored` of a part; the entries that its operations name come behind
local highest = ZERO -- the largest revision of all parts

-- ARGV of one part: kind, birth ('' any life, '+' a new one), if_revision, parents, number of operations, then per operation: code, key, text, expected.
local function parse_parts(first)
  local parts, at = {}, first
  for i = 2, #KEYS, 2 do
    local base, member = names(KEYS[i - 1], KEYS[i])
    local count, fields = tonumber(ARGV[at + 4]), {}
    for j = 1, count do fields[j] = '=' .. ARGV[at + 4 * j + 2] end
    -- 17 names make room for all that is found out later: a table that grows is costly.
    parts[i / 2] = {ctl = KEYS[i - 1], hash = KEYS[i], base = base, member = member, kind = ARGV[at], birth = ARGV[at + 1],
                    if_revision = ARGV[at + 2], parents = ARGV[at + 3], first = at + 5, count = count, fields = fields,
                    values = {}, marks = {}, results = {}, inc = nil, delay = nil, r = nil}
    at = at + 5 + 4 * count
  end
  return parts
end

-- Whether what a part's operations name is too much to be read: Redis copies every value that a script reads.
local function replaces_much(p)
  if tonumber(call('HGET', p.hash, 'z') or 0) <= MOST_REPLACED then return false end
  local size = 0
  for j = 1, p.count do size = size + call('HSTRLEN', p.hash, p.fields[j]) end
  return size > MOST_REPLACED
end

-- Reads a part's head, and the entries that its operations name; returns 'cold', 'revalidate', 'gone', 'stale' or 'replaced' where it
-- cannot be written to.
local function load_scope(p, session)
  local much = p.count > FEW and replaces_much(p)
  local fields = much and {} or p.fields
  local few = p.count <= CHUNK
  local h = call('HMGET', p.hash, 'i', 'r', 'b', 'c', 'x', 'f', 'n', 'z', 'v', 'y', unpack(few and fields or {}))
  if not few then
    for j, value in ipairs(values_of(p.hash, fields)) do h[HEAD + j] = value end
  end
  p.stored = h
  if p.kind == 't' then
    p.fresh = h[3] ~= session.birth
    if p.fresh then h = {false, call('HGET', session.hash, 'e')} end -- R5: no revision is used twice
    p.r, p.cleared, p.n, p.z, p.f = h[2] or ZERO, ZERO, tonumber(h[7] or 0), tonumber(h[8] or 0), ZERO
    p.had, p.size = p.n, p.z
    return much and not p.fresh and 'replaced' or nil
  end
  if not h[1] then return 'cold' end
  if p.kind == 'n' and h[3] ~= session.b then return 'cold' end -- of another life of its session
  if h[1] ~= p.inc or h[10] then return 'revalidate' end
  p.r, p.b, p.deleted, p.f, p.n, p.z = h[2], h[3], h[5], h[6] or ZERO, tonumber(h[7]), tonumber(h[8])
  p.v, p.cleared, p.had, p.size = h[9] or h[2], h[4] or ZERO, p.n, p.z
  if p.kind == 's' and p.birth ~= '+' and (p.deleted or (p.birth ~= '' and h[3] ~= p.birth)) then return 'gone' end -- R5
  if p.if_revision ~= '' and p.if_revision ~= p.v then return 'stale' end
  if much then return 'replaced' end
end

-- Whether what is stored of an entry lives: it is no tombstone, and above last cleared.
local function lives(p, e)
  return #e > 9 and (p.cleared == ZERO or is_above(e, p.cleared))
end

-- Notes the new text of an entry, '' where it is deleted (R14: a tombstone).  `e`: what is stored of it if it lives, else nil.
local function put(p, field, text, e)
  local values, marks = p.values, p.marks
  p.z = p.z + json_size(text) - (e and json_size(e, 10) or 0)
  p.n = p.n + (text == '' and 0 or 1) - (e and 1 or 0)
  values[#values + 1] = field
  values[#values + 1] = text
  marks[#marks + 1] = field
end

-- Clears a scope, without touching its entries (R14: they are dead by last cleared); the number of those that lived.
local function clear(p)
  local n = p.n
  if n > 0 then p.wiped, p.values, p.marks, p.n, p.z = true, {}, {'!'}, 0, 0 end
  return n
end

-- R19: what an increment (I) by, or an append (A) of, a text makes of JSON; nil and why not.  Lua adds exactly where both numbers are
-- whole and have at most 15 digits.
local function combined(code, json, text)
  if code == 'I' then
    local function small(t) return string.match(t, '^%-?%d+$') and #t <= 15 end
    if not small(json) or not small(text) then return nil, 'compute' end
    return string.format('%.0f', tonumber(json) + tonumber(text))
  end
  if string.sub(json, 1, 1) ~= '[' then return nil, 'mismatch' end
  if text == '' then return json end
  return json == '[]' and '[' .. text .. ']' or string.sub(json, 1, -2) .. ',' .. text .. ']'
end

-- One operation: S set, D delete, I increment, A append, only where the entry has the expected revision ('*' any, '' absent);
-- R sets what bears a date unless the entry is of a later time (its own date, else its revision); C clears the scope.
-- Returns a refusal, or nil after noting what is to be done.
local function operate(p, number, code, text, expected)
  local e, field, result = p.stored[HEAD + number], p.fields[number], ''
  if not e or p.fresh or p.wiped or not lives(p, e) then e = nil end
  if code == 'C' then
    result = clear(p)
  elseif expected ~= '*' and expected ~= (e and string.sub(e, 1, 9) or '') then
    return {'stale'}
  elseif code == 'D' then
    result = e and 1 or 0
    if e then put(p, field, '', e) end
  elseif code == 'R' and e and is_above(string.byte(e, 10) == 64 and string.sub(e, 11, 19) or e, string.sub(text, 2, 10)) then
    result = 0
  else
    if code == 'R' then result = 1
    elseif code ~= 'S' then
      if e then
        local json = string.sub(e, -json_size(e, 10))
        local made, why = combined(code, json, text)
        if why == 'compute' then return {why, json, string.sub(e, 1, 9)} end
        if why then return {why} end
        text = made
      elseif code == 'A' then text = '[' .. text .. ']' end
      result = text
    end
    local size = json_size(text)
    if size > LIMIT_VALUE and not (e and size <= json_size(e, 10)) then return {'limit', 'value'} end
    put(p, field, text, e)
  end
  p.results[number] = result
end

-- R4: a call with an idempotency key is applied once, and only under the incarnation that its sender knew.
local function applied_before(first)
  local inc, _, ops = enter(first.ctl)
  if not inc then return {'register', 1} end
  first.ops = ops
  if OPERATION == '' then return nil end
  if inc ~= UNDER then return {'incarnation', inc} end
  return recall(first.base, OPERATION)
end

-- R5: whether the life of a session is over in which a call was applied at `revision`: there is a tombstone, or another birth.
local function is_over(p, revision)
  if p.kind ~= 's' then return false end
  local h = call('HMGET', p.hash, 'b', 'x')
  return h[1] and (h[2] or (p.birth ~= '' and h[1] ~= p.birth) or (p.birth == '' and is_above(h[1], revision)))
end

-- R4: a call that was refused is over, too: a copy of it that comes late must not find things more to its liking.
local function refuse(first, refusal)
  local told = refusal
  if refusal[1] == 'stale' then call('HINCRBY', first.ctl, 'conflicts', 1) end
  if refusal[1] == 'compute' then told = {'stale', refusal[2], refusal[3]} end -- the client reads and computes anew
  remember(first.ctl, first.base, OPERATION, first.ops, LIFETIME, told)
  return refusal
end

-- R5: whether a session may be written to: who writes under a run lease has to hold it.
local function is_fenced(p)
  if LEASE == '' then return true end
  local token, left = lease_of(p.ctl, p.member, p.inc, p.b)
  return token == LEASE and left > 0
end

-- R1: nothing is written before every part has been checked.  Returns the refusal to reply with, or nil.
local function check_parts(parts)
  local first, cold, stale = parts[1], nil, nil
  for i = 1, #parts do
    local p, problem = parts[i], nil
    if p.kind == 't' then p.inc, p.delay = first.inc, first.delay
    else p.inc, p.delay = enter(p.ctl) end
    if not p.inc then return {'register', i} end
    if not p.loaded then problem = load_scope(p, first) end
    if not problem and p.kind == 'u' and erased_until(p.base, string.sub(p.member, 2)) then problem = 'erased' end
    if problem == 'cold' then
      cold = cold or {'cold'}
      cold[#cold + 1] = i
    elseif problem == 'revalidate' then return {problem, i}
    elseif problem == 'replaced' then return {'limit', i, 0, problem}
    elseif problem then return {problem} end
  end
  if cold then return cold end
  if not is_fenced(first) then return {'lease'} end
  for i = 1, #parts do
    local p = parts[i]
    local at = p.first
    for j = 1, p.count do
      local refusal = operate(p, j, ARGV[at], ARGV[at + 2], ARGV[at + 3])
      if refusal and refusal[1] ~= 'stale' then return {refusal[1], i, j, refusal[2], refusal[3]} end
      if refusal then
        stale = stale or {'stale'}
        stale[#stale + 1] = i
        stale[#stale + 1] = j
      end
      at = at + 4
    end
    -- What is above a limit already may become smaller, and stay as it is beside what is written.
    if p.n > LIMIT_KEYS and p.n > (p.had or 0) then return {'limit', i, 0, 'keys'} end
    if p.z > LIMIT_BYTES and p.z > (p.size or 0) then return {'limit', i, 0, 'bytes'} end
    if is_above(p.r, highest) then highest = p.r end
  end
  return stale
end

-- The head of a session of which no key of its own was written.
local function write_head(p, revision, head)
  mark(p.base, p.member, p.hash, {'!'}, p.parents, p.delay)
  destroy_token(p.ctl, p.member)
  call('HSET', p.hash, 'r', revision, 'h', revision, 'u', revision, unpack(head))
end

-- R5: the session remembers the last revision of its temp: keys, which outlives their hash.  One that is ahead of the clock SQL has to
-- know of, too, since it may be the next again once the session was evicted.
local function note_temp(session, revision)
  call('HSET', session.hash, 'e', revision)
  if rev_number(revision) > now() then write_head(session, revision, {'u', call('HGET', session.hash, 'u')}) end
end

-- Ends the entries of a scope that was cleared, before what the same call sets is written; the fields to be announced (nil: too many).
-- The hash is made anew with its head alone, and the old one freed in the background: it takes no longer however many there were.
local function wipe(p, revision)
  local names_ = {'i', 'r', 'b', 'c', 'x', 'f', 'p', 'y', 'n', 'z', 'v', 'h', 'u', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'd', 'g', 'e', 'j', 'l'}
  local head, kept, told = call('HMGET', p.hash, unpack(names_)), {}, nil
  for i, name in ipairs(names_) do
    if head[i] then
      kept[#kept + 1] = name
      kept[#kept + 1] = head[i]
    end
  end
  if call('HLEN', p.hash) - #kept / 2 <= MOST_TOLD then
    told = p.marks
    for _, field in ipairs(call('HKEYS', p.hash)) do
      if string.byte(field) == 61 and call('HSTRLEN', p.hash, field) > 9 then told[#told + 1] = field end
    end
  end
  call('UNLINK', p.hash)
  call('HSET', p.hash, unpack(kept))
  if p.kind ~= 't' then call('HSET', p.hash, 'h', revision, 'c', rev_digits(rev_number(revision) - 1)) end
  return told
end

local function write_temp(p, revision, session)
  local told = p.marks
  if p.fresh then call('DEL', p.hash)
  elseif p.wiped then told = wipe(p, revision) end
  local kept, dropped = {'b', session.birth, 'r', revision, 'n', p.n, 'z', p.z}, {}
  for i = 1, #p.values, 2 do
    if p.values[i + 1] == '' then dropped[#dropped + 1] = p.values[i]
    else
      kept[#kept + 1] = p.values[i]
      kept[#kept + 1] = revision .. p.values[i + 1]
    end
  end
  in_chunks('HSET', p.hash, kept)
  in_chunks('HDEL', p.hash, dropped)
  call('EXPIRE', p.hash, TEMP_TTL)
  if not session.changed then note_temp(session, revision) end
  announce(p.base .. 'w:' .. session.member, 't', revision, ZERO, session.inc, told)
end

-- Marks, then values with their revision and the head fields that go with them, and those of `head` (pairs, if given).
local function write_scope(p, revision, head)
  local values, kind, told = p.values, p.kind, p.marks
  if kind == 's' and not p.wiped then p.marks[#p.marks + 1] = '!' end
  if p.wiped then drop_marks(p.base, p.member) end
  mark(p.base, p.member, p.hash, p.marks, p.parents, p.delay)
  destroy_token(p.ctl, p.member)
  if p.wiped then told = wipe(p, revision) end
  for i = 2, #values, 2 do values[i] = revision .. values[i] end
  if p.n ~= p.had then
    values[#values + 1] = 'n'
    values[#values + 1] = string.format('%.0f', p.n)
  end
  if p.z ~= p.size then
    values[#values + 1] = 'z'
    values[#values + 1] = string.format('%.0f', p.z)
  end
  if head then
    for i = 1, #head do values[#values + 1] = head[i] end
  end
  if #values > CHUNK then
    in_chunks('HSET', p.hash, values)
    values = {}
  end
  if kind == 's' then call('HSET', p.hash, 'r', revision, 'v', revision, 'h', revision, 'u', revision, unpack(values))
  else call('HSET', p.hash, 'r', revision, 'v', revision, unpack(values)) end
  announce(p.base .. 'w:' .. p.member, 'w', revision, p.v or ZERO, p.inc, told)
end

-- Adds to a head the fields that are not empty; the names of the others, which are not kept: each takes 50 bytes or more.
local function add_told(head, fields)
  local without = {}
  for i = 1, #fields, 2 do
    if fields[i + 1] == '' then without[#without + 1] = fields[i]
    else
      head[#head + 1] = fields[i]
      head[#head + 1] = fields[i + 1]
    end
  end
  return without
end

-- The reply: 'ok', the revision of the call, then per part: incarnation, flushed through, changed, results, revision until now, that
-- of the values (of temp: keys none).  What is remembered of it, as JSON, lacks these two, and holds no value but the numbers that increments led to.
local function report(parts, revision)
  local reply, told = {'ok', revision}, '["ok","' .. revision .. '"'
  for i = 1, #parts do
    local p, kept = parts[i], {}
    local results, changed = p.results, p.changed and '1' or '0'
    reply[i + 2] = {p.inc, p.f, p.changed and 1 or 0, results, p.r, p.v}
    for j = 1, #results do
      local result = results[j]
      if type(result) == 'string' then result = #result <= SMALL and string.byte(result) ~= 91 and '"' .. result .. '"' or '""' end
      kept[j] = result
    end
    told = told .. ',["' .. p.inc .. '","' .. p.f .. '",' .. changed .. ',[' .. table.concat(kept, ',') .. ']]'
  end
  remember(parts[1].ctl, parts[1].base, OPERATION, parts[1].ops, LIFETIME, told .. ']')
  return reply
end
