-- Shared by all scripts.
--
-- Keys of bucket {b}, all in one hash slot; only the first two kinds are passed in KEYS, the rest follow from them:
--   P:{b}:ctl                 hash    control: incarnation, replid, run, fed (see origin), registered, delay, ops; t:MEMBER token, c:MEMBER claim,
--                                     l:MEMBER run lease (incarnation, birth, token, expiry); w:NAME worker; counters
--                                     rows, flushes, hydrates, conflicts, lag:STEP
--                                     before (incarnation before this one, until it is registered), forgot (1: Redis had lost
--                                     something), replaced (when SQL last named another one, microseconds)
--                                     of the first bucket idle_ttl, milliseconds that a clean scope stays, as a cache said last
--   P:{b}:h:MEMBER            hash    a scope; MEMBER is its kind and id
--   P:{b}:d:MEMBER            set     its dirty fields
--   P:{b}:dirty               zset    dirty index: MEMBER -> when it is due (microseconds)
--   P:{b}:since               zset    MEMBER -> since when it has been dirty (microseconds)
--   P:{b}:unflushed:X:ID      zset    sessions whose latest head SQL lacks, of a user (u), an app (a), a bare id (b), an org (o),
--                                     a user name in any app of an org (w): each in all five or in none
--   P:{b}:temp:ID             hash    temp: keys of a session
--   P:{b}:ns:ID               set     MEMBER of the dirty namespaces of a session
--   P:{b}:spaces              set     MEMBER of the namespaces that are hot, and of some that were: who erases a user finds them here
--   P:{b}:erased              hash    user scope's id -> until when writes of an erased user are refused (microseconds)
--   P:{b}:ops:0, ops:1        hash    idempotency keys of calls, in two generations, with their replies (see `remember`)
--   P:{b}:dead                hash    MEMBER and field ('!' for the head) -> refused revision, state (0, 1, 2), attempts, when, reason
--   P:{b}:p:MEMBER:NAME       hash    what is stored in pieces of a scope before it is there (stage.lua, gather.lua), with a TTL
--   P:{b}:p:MEMBER:NAME:d     set     the marks that it will have (gather.lua), with a TTL
--   P:{b}:pieces              zset    id of a user, MEMBER:NAME of what is stored in pieces -> until when it may lie there (microseconds); has
--                                     no TTL, so that an eviction takes no entry before its pieces
-- Channels: P:{b}:w:MEMBER    of a scope, P:{b}:w of all scopes of the bucket; for the messages see `announce`
--
-- Fields of a scope: '=' .. key holds nine digits of revision and the text (none: deleted): JSON, behind a date if its caller
-- gave one ('@' and nine digits of microseconds).  Head fields:
--   i incarnation    r scope revision   b birth     c last cleared    x deleted      f flushed through
--   p purged: tombstones of entries up to here have been flushed and dropped    y to be revalidated
--   n living keys    z bytes of values  v revision of the values  h revision of the head  u updated
--   o org  a app  w user  s session id  t title  m messages  k tokens  q forked from (t, m, k and q absent: '' or 0)
--   d id of the session's scope  g namespace (of a namespace, whose b is the birth of its session)
--   e revision of the last write to temp: keys alone  j when it was last recorded to be in use, beside u (of a session)
--   l another one as soon as there may be one more namespace; as long as it is b there never was one (of a session)
-- A clear keeps the head fields that it knows (`wipe` in writing.lua), and nothing else.
-- '!' in the set of dirty fields stands for the head.

local call = redis.call
local ALPHABET = '-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz'
local ZERO = '---------'
local CHUNK = 4000 -- unpack fails from about 8,000 values

-- Digits are never compared with < in Lua, which collates by the locale of the server.
local function rev_number(digits)
  local n = 0
  for i = 1, 9 do
    local c = string.byte(digits, i)
    if c >= 97 then c = c - 59
    elseif c == 95 then c = 37
    elseif c >= 65 then c = c - 54
    elseif c >= 48 then c = c - 47
    else c = 0 end
    n = n * 64 + c
  end
  return n
end

-- Whether a revision (or time) is above another, by the digits that two texts begin with: cheaper than two numbers, and exact.
local function is_above(digits, others)
  local a, b, c, d, e, f, g, h, i = string.byte(digits, 1, 9)
  local j, k, l, m, n, o, p, q, r = string.byte(others, 1, 9)
  local high = ((a - j) * 128 + b - k) * 128 + c - l
  if high ~= 0 then return high > 0 end
  local middle = ((d - m) * 128 + e - n) * 128 + f - o
  if middle ~= 0 then return middle > 0 end
  return ((g - p) * 128 + h - q) * 128 + i - r > 0
end

local function rev_digits(n)
  local s = ''
  for _ = 1, 9 do
    local d = n % 64
    s = string.sub(ALPHABET, d + 1, d + 1) .. s
    n = (n - d) / 64
  end
  return s
end

-- Bytes of JSON in a text, from its first byte or that at `first`: what limits count.  A date may be in front of it: '@', with which
-- JSON never begins, and nine digits.
local function json_size(text, first)
  local size = #text - (first or 1) + 1
  return string.byte(text, first or 1) == 64 and size - 10 or size
end

local NOW
-- Microseconds by the clock of Redis, one reading a script.
local function now()
  if not NOW then
    local t = call('TIME')
    NOW = tonumber(t[1]) * 1000000 + tonumber(t[2])
  end
  return NOW
end

-- R3
local function next_revision(previous)
  return math.max(previous + 1, now())
end

-- R3: the same, from digits to digits.
local function next_digits(previous)
  local digits = rev_digits(now())
  return is_above(digits, previous) and digits or rev_digits(rev_number(previous) + 1)
end

local function info(section) return call('INFO', section) end

local REPLICATION
local function replication()
  REPLICATION = REPLICATION or info('replication')
  return REPLICATION
end

local REPLID
local function replid()
  if not REPLID then
    local told = replication()
    local _, before = string.find(told, 'master_replid:', 1, true)
    REPLID = string.sub(told, before + 1, before + 40)
  end
  return REPLID
end

-- R17: which process this is, and how many bytes it has ever taken from a primary.
local function origin()
  return string.match(info('server'), 'run_id:(%w+)'), string.match(info('stats'), 'total_net_repl_input_bytes:(%d+)')
end

-- Whether this server was promoted from a replica.
local function was_promoted()
  return not string.find(replication(), 'master_replid2:' .. string.rep('0', 40), 1, true)
end

-- R17: whether Redis has forgotten nothing since its replid and origin were recorded: the first replica that attaches changes the replid,
-- too, and so does the freeing of the backlog.
local function has_all(noted, run, fed)
  if noted == replid() then return true end
  local now_run, now_fed = origin()
  return run == now_run and fed == now_fed and not was_promoted()
end

-- Redis refuses a script that writes at a replica.  One that only reads has to do so itself: what is there may be old, and whoever
-- asked is to look for the primary.
local AT_REPLICA = 'READONLY a replica may be behind'
local function at_replica()
  return not string.find(replication(), 'role:master', 1, true)
end

-- R17: the incarnation of a bucket that SQL knows, its flush delay and its generation of idempotency keys;
-- nil: the caller has to register it first.
local entered = {}
local function enter(ctl)
  local c = entered[ctl] or call('HMGET', ctl, 'incarnation', 'replid', 'registered', 'delay', 'ops')
  entered[ctl] = c
  if not c[1] or c[2] ~= replid() or c[3] ~= '1' then
    return nil
  end
  return c[1], tonumber(c[4] or '1000000'), c[5]
end

-- The bucket's common beginning of keys, and kind and id of a scope's hash.
local function names(ctl, hash)
  local base = string.sub(ctl, 1, -4)
  return base, string.sub(hash, #base + 3)
end

-- Calls a command with a key and any number of arguments, in chunks of an even number; the sum of the replies.
local function in_chunks(command, key, args)
  local n, sum = #args, 0
  for i = 1, n, CHUNK do
    sum = sum + call(command, key, unpack(args, i, math.min(i + CHUNK - 1, n)))
  end
  return sum
end

-- The index of unflushed sessions that is named by the id at a place among a session's parents.
local function unflushed_index(base, place, parents)
  return base .. 'unflushed:' .. string.sub('aubow', place, place) .. ':' .. string.sub(parents, 32 * place - 31, 32 * place)
end

-- SQL lacks the latest head of a session.  One that is in the first index is in all: most marks stop there.
local function enter_unflushed(base, member, parents)
  local since = string.format('%.0f', now())
  if call('ZADD', unflushed_index(base, 2, parents), 'NX', since, member) == 0 then return end
  for _, place in ipairs({1, 3, 4, 5}) do
    call('ZADD', unflushed_index(base, place, parents), since, member)
  end
end

-- SQL has the latest head of a session.
local function leave_unflushed(base, member, parents)
  if #parents ~= 160 or call('ZREM', unflushed_index(base, 2, parents), member) == 0 then return end
  for _, place in ipairs({1, 3, 4, 5}) do call('ZREM', unflushed_index(base, place, parents), member) end
end

-- Notifies workers that a bucket is dirty.  A server that refuses to publish (an access list without channels) must not undo or cut short
-- what the script does: workers sweep all buckets now and then.
local function wake(base)
  redis.pcall('PUBLISH', string.match(base, '^(.*):{') .. ':wake', base)
end

-- R1, R15: marks, index and PERSIST come before any value, since Lua has no rollback.
-- `parents` holds the ids of app, user, bare session id, org, and user name in the org (32 digits each) of a session, the id
-- of its session's scope for a namespace, '' else.  The session of a dirty namespace is pinned, too.
-- What is in the dirty index is in `since`, and a session whose head is marked is in the indexes of unflushed ones: neither is
-- asked where nothing new was marked.  Numbers are given as text, which Redis takes at half the cost.
local function mark(base, member, hash, fields, parents, delay)
  local marked = in_chunks('SADD', base .. 'd:' .. member, fields)
  if call('ZADD', base .. 'dirty', 'NX', string.format('%.0f', now() + delay), member) == 1 then
    if call('ZCARD', base .. 'dirty') == 1 then wake(base) end
    call('ZADD', base .. 'since', 'NX', string.format('%.0f', now()), member)
  end
  if #parents == 32 then
    call('SADD', base .. 'ns:' .. parents, member)
    call('PERSIST', base .. 'h:s' .. parents)
  end
  if #parents == 160 and marked > 0 then enter_unflushed(base, member, parents) end
  call('PERSIST', hash)
end

local MOST_TOLD = 1000 -- keys that one announcement names

-- Tells whoever watches a scope what happened: 'w' fields of it were written, 't' temp: keys of the session were, 'x' the session is
-- gone, '?' it may be another than it was.  `before`: its revision until now; `fields`: nil where they are too many to be named.  The
-- incarnation tells the scope from that of another installation in another database of this server, which has the same channel.  A
-- server that refuses to publish must not undo a write.
local function announce(channel, what, revision, before, inc, fields)
  local told = fields and #fields <= MOST_TOLD and table.concat(fields, '\0') or '*'
  redis.pcall('SPUBLISH', channel, what .. revision .. before .. inc .. '|' .. told)
end

-- Whether a loader's token is still in the scope's slot, taken in this incarnation.
local function holds_token(ctl, member, inc, token)
  local held = call('HGET', ctl, 't:' .. member)
  return held and string.match(held, '^(.-)|%d+$') == inc .. '|' .. token
end

-- R10: which of some dirty fields the database refused at the revision that they have, and that revision.  `kind` is a pattern of their
-- state: '0' refused, but not often enough for a dead letter, '1' a dead letter, '2' one that is being retried.  nil: it refused nothing in this bucket.  Only of those with a dead letter the value is read: all of a scope's are large.
local function letters_of(base, member, fields, kind)
  local letters, hash = base .. 'dead', base .. 'h:' .. member
  if call('EXISTS', letters) == 0 then return nil end
  local dead = {}
  for i = 1, #fields, CHUNK do
    local names_, accused, revisions = {}, {}, {}
    for j = i, math.min(i + CHUNK - 1, #fields) do names_[j - i + 1] = member .. fields[j] end
    for j, letter in ipairs(call('HMGET', letters, unpack(names_))) do
      if letter and string.find(string.sub(letter, 11, 11), kind) then
        accused[#accused + 1] = fields[i + j - 1]
        revisions[#revisions + 1] = string.sub(letter, 1, 9)
      end
    end
    for j, value in ipairs(#accused > 0 and call('HMGET', hash, unpack(accused)) or {}) do
      if value and string.sub(value, 1, 9) == revisions[j] then dead[accused[j]] = revisions[j] end
    end
  end
  return dead
end

-- R10: the revision for which a dead letter on a head ('!') holds: that of a session's head, of any write to another scope.
local function head_version(base, member)
  return call('HGET', base .. 'h:' .. member, string.byte(member) == 115 and 'h' or 'r')
end

-- R10: whether the head of a scope, or of the session of a namespace, is a dead letter: nothing of the scope can be flushed then.
local function is_headless(base, member, session)
  local function is_dead(one)
    local letter = call('HGET', base .. 'dead', one .. '!')
    return letter and string.sub(letter, 11, 11) == '1' and string.sub(letter, 1, 9) == head_version(base, one)
  end
  return is_dead(member) or session and is_dead('s' .. session)
end

-- R10: the dirty namespaces of a session whose head is no dead letter any more are due now.  Whether there are any.
local function wake_namespaces(base, session)
  local found = false
  for _, member in ipairs(call('SMEMBERS', base .. 'ns:' .. session)) do
    if call('EXISTS', base .. 'd:' .. member) == 1 then
      call('ZADD', base .. 'dirty', 'NX', string.format('%.0f', now()), member)
      call('ZADD', base .. 'since', 'NX', string.format('%.0f', now()), member)
      found = true
    end
  end
  return found
end

-- The values of fields, false where there is none.
local function values_of(hash, fields)
  local values = {}
  for i = 1, #fields, CHUNK do
    local last = math.min(i + CHUNK - 1, #fields)
    for j, value in ipairs(call('HMGET', hash, unpack(fields, i, last))) do values[i + j - 1] = value end
  end
  return values
end

-- R10: a scope of which only dead letters are dirty stays pinned, but is neither claimed nor old.  Whether it is one.
local function rest(ctl, base, member, hash)
  if call('EXISTS', base .. 'dead') == 0 then return false end
  if not is_headless(base, member, call('HGET', hash, 'd')) then
    if call('SCARD', base .. 'd:' .. member) > call('HLEN', base .. 'dead') then return false end
    local marks = call('SMEMBERS', base .. 'd:' .. member)
    local dead = letters_of(base, member, marks, '1') or {}
    for _, field in ipairs(marks) do
      if not dead[field] then return false end
    end
  end
  call('ZREM', base .. 'dirty', member)
  call('ZREM', base .. 'since', member)
  call('HDEL', ctl, 'c:' .. member)
  return true
end

-- R9: until when a scope is claimed; 0: it is not.  A claim that was made, or renewed, later than now is none: the clock was set back.
local function claimed_until(ctl, member)
  local made, ends = string.match(call('HGET', ctl, 'c:' .. member) or '', '|(%d+)|(%d+)$')
  return made and tonumber(made) <= now() and tonumber(ends) > now() and tonumber(ends) or 0
end

-- What stands in the way of work on a namespace of a session in its life of `birth`: 'cold', 'revalidate', 'gone' or nil.
local function host_problem(base, session, inc, birth)
  local h = call('HMGET', base .. 'h:s' .. session, 'i', 'b', 'x', 'y')
  if not h[1] then return 'cold' end
  if h[1] ~= inc or h[4] then return 'revalidate' end
  if h[3] or h[2] ~= birth then return 'gone' end
end

-- Whether a session has dirty namespaces: it stays pinned with them.
local function has_dirty_namespaces(base, session)
  local index = base .. 'ns:' .. session
  for _, member in ipairs(call('SMEMBERS', index)) do
    if call('EXISTS', base .. 'd:' .. member) == 1 then return true end
    call('SREM', index, member) -- Redis lost it
  end
  return false
end

-- R15: a namespace that is not dirty any more lets its session go, which gets a TTL once nothing pins it.
local function let_go(base, session, member, ttl)
  call('SREM', base .. 'ns:' .. session, member)
  if call('EXISTS', base .. 'd:s' .. session) == 0 and not has_dirty_namespaces(base, session) then
    call('PEXPIRE', base .. 'h:s' .. session, ttl)
  end
end

-- Drops the marks of a scope, and the dead letters (R10) of its entries, which are all marked.
local function drop_marks(base, member)
  if call('EXISTS', base .. 'dead') == 1 then
    local letters = {}
    for _, field in ipairs(call('SMEMBERS', base .. 'd:' .. member)) do
      if field ~= '!' then letters[#letters + 1] = member .. field end
    end
    in_chunks('HDEL', base .. 'dead', letters)
  end
  call('UNLINK', base .. 'd:' .. member)
end

-- Drops a scope that nobody can reach any more, with its marks, claim and dead letters.  `ttl`: milliseconds that the session
-- of a namespace stays if it is clean.
local function drop_scope(ctl, base, member, ttl)
  local session = call('HGET', base .. 'h:' .. member, 'd')
  drop_marks(base, member)
  call('HDEL', base .. 'dead', member .. '!')
  call('UNLINK', base .. 'h:' .. member)
  call('ZREM', base .. 'dirty', member)
  call('ZREM', base .. 'since', member)
  call('HDEL', ctl, 'c:' .. member, 't:' .. member)
  if session then
    call('SREM', base .. 'spaces', member)
    let_go(base, session, member, ttl)
  end
end

-- R15: a clean scope gets a TTL; a session only when no namespace of it is dirty.
local function unpin(base, member, hash, ttl)
  local kind = string.sub(member, 1, 1)
  if kind == 's' and has_dirty_namespaces(base, string.sub(member, 2)) then return end
  call('PEXPIRE', hash, ttl)
  local session = kind == 'n' and call('HGET', hash, 'd')
  if session then let_go(base, session, member, ttl) end
end

-- Until when writes of a user are refused, since the user is being erased; nil: they are not.
-- A date absurdly far ahead is none.
local function erased_until(base, user)
  local till = tonumber(call('HGET', base .. 'erased', user) or 0)
  if till > now() and till < now() + 3600000000 then return till end
end

-- R14: records for an erasure whose pieces (MEMBER:NAME) are about to be stored, for so many milliseconds: nothing else names them.
-- What has expired leaves the index when the next one of the bucket is recorded.
local function note_pieces(base, user, pieces, stays)
  call('ZREMRANGEBYSCORE', base .. 'pieces', '-inf', string.format('%.0f', now()))
  call('ZADD', base .. 'pieces', string.format('%.0f', now() + tonumber(stays) * 1000), user .. pieces)
end

-- The run lease of a session, if one is held in this incarnation and life: its token, microseconds left.
local function lease_of(ctl, member, inc, birth)
  local held = call('HGET', ctl, 'l:' .. member)
  if not held then return nil end
  local under, life, token, ends = string.match(held, '^(.-)|(.-)|(.-)|(%d+)$')
  if under ~= inc or life ~= birth then return nil end
  -- A date absurdly far ahead comes from a clock that was set back since.
  local left = tonumber(ends) - now()
  return token, left <= 86400000000 and left or 0
end

-- R4: the reply that a call gave when it came first; nil: it did not come before.
local function recall(base, op)
  local done = op ~= '' and (call('HGET', base .. 'ops:0', op) or call('HGET', base .. 'ops:1', op))
  if done then return cjson.decode(done) end
end

-- R4: remembers a call and its reply (a table, or its JSON), which holds no value of an entry but the number that an increment led
-- to, for at least `lifetime` microseconds, however the clock is set meanwhile.  Two generations take turns, and the older one goes
-- only when the newer one is as old as `lifetime`.  The control hash has which is the newer, when it was last read, and its age
-- then.  Once a second it is read, and what has passed since counts for 5 s at most, since the clock may have been set: so no
-- step makes it older than it is by more, and where a bucket is hardly written to it grows old by calls.
local function remember(ctl, base, op, ops, lifetime, reply)
  if op == '' then return end
  local which, gap = ops and string.sub(ops, 1, 1), now() - (ops and tonumber(string.sub(ops, 3, 18)) or 0)
  if gap < 0 or gap >= 1000000 then
    local age = ops and string.match(ops, '^[01]|%d+|(%d+)$')
    which = age and which or '0'
    age = age and age + math.max(0, math.min(gap, 5000000)) or 0
    if age >= lifetime then
      which, age = which == '0' and '1' or '0', 0
      call('UNLINK', base .. 'ops:' .. which)
    end
    call('HSET', ctl, 'ops', string.format('%s|%.0f|%.0f', which, now(), age))
  end
  call('HSET', base .. 'ops:' .. which, op, type(reply) == 'string' and reply or cjson.encode(reply))
end

-- R13: whatever brings a hash into being or changes it takes the token away from a loader in flight.
local function destroy_token(ctl, member)
  call('HDEL', ctl, 't:' .. member)
end
