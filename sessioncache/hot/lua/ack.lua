#!lua flags=allow-oom
-- include: prelude
-- Acknowledges what a transaction committed of scopes of one bucket, by version, and counts rows and lag.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   microseconds of flush delay, milliseconds a clean scope stays, milliseconds a clean tombstone stays; then per scope:
--        how many arguments follow of it, incarnation, scope revision R, microseconds of the reading, parents (see mark),
--        head revision as read, verdict on the head, number of rows, then per row field, revision, verdict; then phantoms.
--        Verdicts: '=' SQL has it, '>' SQL has a newer one
-- Reply  per scope: {'ok', marks left, rows acknowledged, refused field...} {'stale'}: another incarnation, nothing was changed
--        {'register', 1}; refused '!' is the head; '?' .. field: the field is missing or older than what was committed
-- Guards R7 (a refusal is never acknowledged, but flags the scope), R10 (flushed letters go, dead ones hold back), R8 (by version; re-arms; honest age; flushed through), R1 (phantoms), R15, R17

local ctl, delay = KEYS[1], tonumber(ARGV[1])
local base = string.sub(ctl, 1, -4)
local current = enter(ctl)
local has_letters = call('EXISTS', base .. 'dead') == 1
local flushes, rows_flushed, written = 0, 0, {}
local claims, clean = {}, {} -- of all scopes, to go at once

-- Quarter octaves of milliseconds: 'lag:40' counts what took about 2 ^ (40 / 4) ms.
local function lag(revision)
  local ms = math.max((now() - rev_number(revision)) / 1000, 1)
  return 'lag:' .. math.floor(4 * math.log(ms) / math.log(2) + 0.5)
end

local function acknowledge(hash, at)
  local inc, R, read_at = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local parents, head_revision, head_verdict, rows = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], tonumber(ARGV[at + 7])
  local _, member = names(ctl, hash)
  local dirty = base .. 'd:' .. member
  local first_row = at + 8
  local h = {'i', 'r', 'h', 'f', 'c', 'p', 'x'}
  for i = 1, rows do h[7 + i] = ARGV[first_row + 3 * (i - 1)] end
  h = values_of(hash, h)
  if current ~= inc or h[1] ~= inc then return {'stale'} end

  local cleared, purged = rev_number(h[5] or ZERO), h[6] or ZERO
  local refused, gone, dropped, acknowledged = {}, {}, {}, 0
  local holds_back = false

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

  for i = 1, rows do
    local row = first_row + 3 * (i - 1)
    settle(ARGV[row], h[7 + i], ARGV[row + 1], ARGV[row + 2])
  end
  for i = first_row + 3 * rows, at + tonumber(ARGV[at]) do
    local value = call('HGET', hash, ARGV[i])
    if not value or rev_number(value) <= cleared then gone[#gone + 1] = ARGV[i] end
  end
  if head_verdict == '=' then
    if h[3] == head_revision then
      gone[#gone + 1] = '!'
      if parents ~= '' then leave_unflushed(base, member, parents) end
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
  if has_letters then
    local letters = {}
    for i, field in ipairs(gone) do letters[i] = member .. field end
    in_chunks('HDEL', base .. 'dead', letters)
    local marks = call('SMEMBERS', dirty)
    local values = values_of(hash, marks)
    if next(letters_of(base, member, marks, values, '.') or {}) then holds_back = true end
    stays_old = stays_old or next(letters_of(base, member, marks, values, '0') or {})
  end
  if not holds_back and rev_number(R) > rev_number(h[4] or ZERO) then call('HSET', hash, 'f', R) end
  claims[#claims + 1] = 'c:' .. member
  if left == 0 then
    clean[#clean + 1] = member
    unpin(base, member, hash, h[7] and ARGV[3] or ARGV[2])
  elseif not rest(ctl, base, member, hash) then
    call('ZADD', base .. 'dirty', now() + delay, member)
    if not stays_old then call('ZADD', base .. 'since', read_at, member) end
  end
  flushes, rows_flushed = flushes + 1, rows_flushed + acknowledged
  local reply = {'ok', left, acknowledged}
  for _, field in ipairs(refused) do reply[#reply + 1] = field end
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
if flushes > 0 then call('HINCRBY', ctl, 'flushes', flushes) end
if rows_flushed > 0 then
  call('HINCRBY', ctl, 'rows', rows_flushed)
  for revision, n in pairs(written) do call('HINCRBY', ctl, lag(revision), n) end
end
return replies
