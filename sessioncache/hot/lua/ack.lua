#!lua flags=allow-oom
-- include: prelude
-- Acknowledges what a transaction committed of scopes of one bucket, by version, and counts rows and lag.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   microseconds of flush delay, milliseconds a clean scope stays, milliseconds a clean tombstone stays; then per scope:
--        how many arguments follow of it, incarnation, scope revision R, microseconds of the reading, parents (see mark),
--        head revision as read, verdict on the head, what holds `flushed through` back ('0' nothing, '1' something dirty was
--        left out of what was committed, '2' so was a row of a piece before this; '-' it is not the last piece of the scope),
--        number of rows, then per row field, revision, verdict; then phantoms.
--        Verdicts: '=' SQL has it, '>' SQL has a newer one.  Only the last piece settles the head, the claim and what follows
-- Reply  per scope: {'ok', marks left, rows acknowledged, refused field...} {'stale'}: another incarnation, nothing was changed
--        {'register', 1}; refused '!' is the head; '?' .. field: the field is missing or older than what was committed
-- Guards R7 (a refusal is never acknowledged, but marks the scope), R10 (flushed dead letters go, others hold back), R8 (by version; re-arms; honest age; flushed through,
-- never past what was left out, even where that has been written anew since), R1 (phantoms), R15, R17

local ctl, delay = KEYS[1], tonumber(ARGV[1])
local base = string.sub(ctl, 1, -4)
local current = enter(ctl)
local has_letters = call('EXISTS', base .. 'dead') == 1
local flushes, rows_flushed, written = 0, 0, {}
local claims, clean, leaving = {}, {}, {} -- of all scopes, to go at once; indexes of unflushed sessions -> sessions that leave

-- Quarter octaves of milliseconds: 'lag:40' counts what took about 2 ^ (40 / 4) ms.
local function lag(revision)
  local ms = math.max((now() - rev_number(revision)) / 1000, 1)
  return 'lag:' .. math.floor(4 * math.log(ms) / math.log(2) + 0.5)
end

-- SQL has the latest head of a session.
local function leave(member, parents)
  if #parents ~= 160 then return end
  for place = 1, 5 do
    local index = unflushed_index(base, place, parents)
    local members = leaving[index]
    if members then members[#members + 1] = member else leaving[index] = {member} end
  end
end

-- R10: dead letters that were flushed go; with a namespace, what made its session's head suspect: SQL accepted that one, too.
local function drop_letters(member, gone, has_head)
  local letters = {}
  for _, field in ipairs(gone) do
    if field ~= '!' then letters[#letters + 1] = member .. field end
  end
  in_chunks('HDEL', base .. 'dead', letters)
  if has_head and call('HDEL', base .. 'dead', member .. '!') == 1 then wake_namespaces(base, string.sub(member, 2)) end
  local session = has_head and string.byte(member) == 110 and call('HGET', base .. 'h:' .. member, 'd')
  local letter = session and call('HGET', base .. 'dead', 's' .. session .. '!')
  if letter and string.sub(letter, 11, 11) ~= '1' then call('HDEL', base .. 'dead', 's' .. session .. '!') end
end

-- R10: whether something was refused that is no dead letter yet: that makes it no younger.
local function is_suspect(member, dirty)
  return next(letters_of(base, member, call('SMEMBERS', dirty), '[02]') or {})
end

local function acknowledge(hash, at)
  local inc, R, read_at = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local head_revision, head_verdict, rows = ARGV[at + 5], ARGV[at + 6], tonumber(ARGV[at + 8])
  local member, first_row, asked = string.sub(hash, #base + 3), at + 9, {'i', 'r', 'h', 'f', 'c', 'p', 'x'}
  local after_rows = first_row + 3 * rows
  for i = 1, rows do asked[7 + i] = ARGV[first_row + 3 * i - 3] end
  local h = rows < CHUNK and call('HMGET', hash, unpack(asked)) or values_of(hash, asked)
  if current ~= inc or h[1] ~= inc then return {'stale'} end

  local dirty, cleared, purged = base .. 'd:' .. member, h[5] or ZERO, h[6] or ZERO
  local refused, gone, dropped, acknowledged = {}, {}, {}, 0
  local is_last, holds_back, stays_old = ARGV[at + 7] ~= '-', ARGV[at + 7] ~= '0', ARGV[at + 7] == '2'
  for i = 1, rows do
    local row, value = first_row + 3 * i - 3, h[7 + i]
    local field, revision, here = asked[7 + i], ARGV[row + 1], value and string.sub(value, 1, 9)
    if ARGV[row + 2] ~= '=' then
      if here == revision then
        refused[#refused + 1] = field
        holds_back, stays_old = true, true
      end
    else
      acknowledged = acknowledged + 1
      written[revision] = (written[revision] or 0) + 1
      if here == revision then
        gone[#gone + 1] = field
        if #value == 9 then -- SQL keeps the tombstone
          dropped[#dropped + 1] = field
          if is_above(revision, purged) then purged = revision end
        end
      elseif is_above(revision, cleared) and is_above(revision, purged) and (not here or is_above(revision, here)) then
        refused[#refused + 1] = '?' .. field
      end
    end
  end
  for i = after_rows, at + tonumber(ARGV[at]) do
    local value = call('HGET', hash, ARGV[i])
    if not value or not is_above(value, cleared) then gone[#gone + 1] = ARGV[i] end
  end
  local has_head = is_last and head_verdict == '='
  if has_head then
    if h[3] == head_revision then
      gone[#gone + 1] = '!'
      leave(member, ARGV[at + 4])
    end
  elseif is_last and h[2] == R then
    refused[#refused + 1] = '!'
    holds_back, stays_old = true, true
  end

  in_chunks('SREM', dirty, gone)
  in_chunks('HDEL', hash, dropped)
  if #refused > 0 then call('HSET', hash, 'y', '1') end -- R7, R17: to be compared with SQL
  if purged ~= (h[6] or ZERO) then call('HSET', hash, 'p', purged) end

  rows_flushed = rows_flushed + acknowledged
  if has_letters then drop_letters(member, gone, has_head) end
  local left = call('SCARD', dirty)
  if is_last then
    if has_letters and is_suspect(member, dirty) then stays_old = true end
    if not holds_back and is_above(R, h[4] or ZERO) then call('HSET', hash, 'f', R) end
    flushes = flushes + 1
    claims[#claims + 1] = 'c:' .. member
    if left == 0 then
      clean[#clean + 1] = member
      unpin(base, member, hash, h[7] and ARGV[3] or ARGV[2])
    elseif not rest(ctl, base, member, hash) then
      call('ZADD', base .. 'dirty', now() + delay, member)
      if not stays_old then call('ZADD', base .. 'since', read_at, member) end
    end
  end
  local reply = {'ok', left, acknowledged}
  for i, field in ipairs(refused) do reply[3 + i] = field end
  return reply
end

local replies, at = {}, 4
for i = 2, #KEYS do
  replies[i - 1] = current and acknowledge(KEYS[i], at) or {'register', 1}
  at = at + 1 + tonumber(ARGV[at])
end
in_chunks('HDEL', ctl, claims)
in_chunks('ZREM', base .. 'dirty', clean)
in_chunks('ZREM', base .. 'since', clean)
for index, members in pairs(leaving) do in_chunks('ZREM', index, members) end
if flushes > 0 then call('HINCRBY', ctl, 'flushes', flushes) end
if rows_flushed > 0 then
  call('HINCRBY', ctl, 'rows', rows_flushed)
  local lags = {}
  for revision, n in pairs(written) do
    local name = lag(revision)
    lags[name] = (lags[name] or 0) + n
  end
  for name, n in pairs(lags) do call('HINCRBY', ctl, name, n) end
end
return replies
