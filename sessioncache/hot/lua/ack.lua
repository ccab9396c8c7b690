#!lua flags=allow-oom
-- include: prelude
-- Acknowledges what a transaction committed of one scope, by version, and counts rows and lag.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   incarnation, scope revision R, microseconds of the reading, of flush delay, milliseconds a clean scope stays,
--        milliseconds a clean tombstone stays, parents (see mark), head revision as read, verdict on the head,
--        number of rows, then per row field, revision, verdict; then phantoms.  Verdicts: '=' SQL has it, '>' SQL has a newer one
-- Reply  {'ok', marks left, rows acknowledged, refused field...} {'stale'}: another incarnation, nothing was changed
--        {'register', 1}; refused '!' is the head; '?' .. field: the field is missing or older than what was committed
-- Guards R7 (a refusal is never acknowledged, but flags the scope), R10 (flushed letters go, dead ones hold back), R8 (by version; re-arms; honest age; flushed through), R1 (phantoms), R15, R17

local ctl, hash = KEYS[1], KEYS[2]
local inc, R, read_at, delay = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local base, member = names(ctl, hash)
local dirty = base .. 'd:' .. member
local current = enter(ctl)
if not current then return {'register', 1} end
local h = call('HMGET', hash, 'i', 'r', 'h', 'f', 'c', 'p', 'x')
if current ~= inc or h[1] ~= inc then return {'stale'} end

local cleared, purged = rev_number(h[5] or ZERO), h[6] or ZERO
local refused, gone, dropped, acknowledged, written = {}, {}, {}, 0, {}
local holds_back = false

-- Quarter octaves of milliseconds: 'lag:40' counts what took about 2 ^ (40 / 4) ms.
local function lag(revision)
  local ms = math.max((now() - rev_number(revision)) / 1000, 1)
  return 'lag:' .. math.floor(4 * math.log(ms) / math.log(2) + 0.5)
end

local function settle(field, value, revision, verdict)
  local here = value and string.sub(value, 1, 9)
  if verdict == '=' then
    acknowledged = acknowledged + 1
    written[revision] = (written[revision] or 0) + 1
    if here == revision then
      gone[#gone + 1] = field
      if #value == 9 then -- SQL keeps the tombstone
        dropped[#dropped + 1] = field
        if rev_number(revision) > rev_number(purged) then purged = revision end
      end
    elseif rev_number(revision) > cleared and rev_number(revision) > rev_number(purged)
      and (not here or rev_number(here) < rev_number(revision)) then
      refused[#refused + 1] = '?' .. field
    end
  elseif here == revision then
    refused[#refused + 1] = field
    holds_back = true
  end
end

local rows = tonumber(ARGV[10])
local fields = {}
for i = 1, rows do fields[i] = ARGV[8 + 3 * i] end
for first = 1, rows, CHUNK do
  local values = call('HMGET', hash, unpack(fields, first, math.min(first + CHUNK - 1, rows)))
  for j = 1, #values do
    local at = 8 + 3 * (first + j - 1)
    settle(ARGV[at], values[j], ARGV[at + 1], ARGV[at + 2])
  end
end
for i = 11 + 3 * rows, #ARGV do
  local value = call('HGET', hash, ARGV[i])
  if not value or rev_number(value) <= cleared then gone[#gone + 1] = ARGV[i] end
end
if ARGV[9] == '=' then
  if h[3] == ARGV[8] then
    gone[#gone + 1] = '!'
    if ARGV[7] ~= '' then leave_unflushed(base, member, ARGV[7]) end
  end
elseif h[2] == R then
  refused[#refused + 1] = '!'
  holds_back = true
end

in_chunks('SREM', dirty, gone)
in_chunks('HDEL', hash, dropped)
if #refused > 0 then call('HSET', hash, 'y', '1') end -- R7, R17: to be compared with SQL
if purged ~= (h[6] or ZERO) then call('HSET', hash, 'p', purged) end

local left = call('SCARD', dirty)
local stays_old = holds_back -- what was refused is no younger for that, and is tried again
if call('EXISTS', base .. 'dead') == 1 then
  local letters = {}
  for i, field in ipairs(gone) do letters[i] = member .. field end
  in_chunks('HDEL', base .. 'dead', letters)
  local marks = call('SMEMBERS', dirty)
  local values = values_of(hash, marks)
  if next(letters_of(base, member, marks, values, '.') or {}) then holds_back = true end
  stays_old = stays_old or next(letters_of(base, member, marks, values, '0') or {})
end
if not holds_back and rev_number(R) > rev_number(h[4] or ZERO) then call('HSET', hash, 'f', R) end
call('HDEL', ctl, 'c:' .. member)
if left == 0 then
  call('ZREM', base .. 'dirty', member)
  call('ZREM', base .. 'since', member)
  unpin(base, member, hash, h[7] and ARGV[6] or ARGV[5])
elseif not rest(ctl, base, member, hash) then
  call('ZADD', base .. 'dirty', now() + delay, member)
  if not stays_old then call('ZADD', base .. 'since', read_at, member) end
end
call('HINCRBY', ctl, 'flushes', 1)
if acknowledged > 0 then
  call('HINCRBY', ctl, 'rows', acknowledged)
  for revision, n in pairs(written) do call('HINCRBY', ctl, lag(revision), n) end
end
local reply = {'ok', left, acknowledged}
for _, field in ipairs(refused) do reply[#reply + 1] = field end
return reply
