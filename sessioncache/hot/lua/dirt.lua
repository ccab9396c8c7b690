#!lua flags=allow-oom
-- include: prelude
-- Reads what of scopes SQL may lack, each with its scope revision and the incarnation, in one step.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   milliseconds a clean scope stays, most bytes that are returned of one scope, '1': no values are returned, however large it is
-- Reply  per scope: {'ok', incarnation, microseconds now, {value or false per field of NAMES}, {mark, ...}, {value or false per
--        mark}, {value or false per field of NAMES} of its session for a namespace, else {}, number of dead letters that were
--        left out}; a mark without a value above last cleared is a phantom
--        {'later'}: enough was read already; ask again.  {'large', bytes}: it is more than that, or than Lua is to hold (an
--        upper bound where there are many marks); its values are read past Lua (dirty_pieces.py)
--        {'missing'}: Redis evicted a dirty scope; its marks are gone now.  {'dropped'}: its session's life is over, or it is
--        clean by now, or the database refuses its head
--        {'register', 1} {'revalidate', 1} {'host', 'cold', 'revalidate' or 'unflushed', its session's scope}
-- Guards R6 (one reading; SQL gets a session's life with all that it began with), R1 (marks without a field are found), R10 (dead letters are left out), R17; and that no script takes
--        long: it reads 1 MiB or 2,000 values, and one scope of 512 KiB and 1,000 more

local ctl = KEYS[1]
local base = string.sub(ctl, 1, -4)
local inc = enter(ctl)

-- R6: the rows of a namespace come with the head of its session, and that head not before the session's own rows.  Where the
-- database refuses one of these as data, they come apart anyhow.
local function is_unborn(session)
  local host = 's' .. session
  local h = call('HMGET', base .. 'h:' .. host, 'b', 'f')
  if rev_number(h[2] or ZERO) >= rev_number(h[1]) or call('SISMEMBER', base .. 'd:' .. host, '!') == 0 then return false end
  if call('EXISTS', base .. 'dead') == 0 then return true end
  return not next(letters_of(base, host, call('SMEMBERS', base .. 'd:' .. host), '.') or {})
end

local NAMES = {'i', 'y', 'r', 'b', 'c', 'x', 'v', 'h', 'u', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'd', 'g', 'f', 'z'}
local MOST, MARK = 1048576, 512 -- bytes after which no further scope is read: Lua holds the whole reply; a value counts for some
local MANY, LARGE = 1000, 524288 -- marks and bytes above which the values of a scope do not go through Lua
local most, only_marks = math.min(tonumber(ARGV[2]), LARGE), ARGV[3] == '1'
local with_letters = call('EXISTS', base .. 'dead') == 1
local spent = 0

-- Bytes of the values of a few marks; at most, where that is little.  `most_of_all`: of any marks of the scope.
local function size_of(hash, marks, most_of_all)
  if most_of_all <= most then return most_of_all end
  local size = 0
  for _, field in ipairs(marks) do size = size + call('HSTRLEN', hash, field) end
  return size
end

-- Marks without those of dead letters.
local function without_letters(member, marks)
  local dead, kept = letters_of(base, member, marks, '1') or {}, {}
  for _, field in ipairs(marks) do
    if not dead[field] then kept[#kept + 1] = field end
  end
  return kept
end

local function dirt_of(hash)
  local _, member = names(ctl, hash)
  local have = call('HMGET', hash, unpack(NAMES))
  if not have[1] then
    if not call('ZSCORE', base .. 'dirty', member) then return {'dropped'} end -- since it was claimed
    drop_scope(ctl, base, member, ARGV[1])
    return {'missing'}
  end
  local session = have[18]
  if with_letters and is_headless(base, member, session) then
    rest(ctl, base, member, hash)
    return {'dropped'}
  end
  if session then
    local problem = host_problem(base, session, inc, have[4])
    if problem == 'gone' then
      drop_scope(ctl, base, member, ARGV[1])
      return {'dropped'}
    end
    if problem then return {'host', problem, session} end
    if is_unborn(session) then return {'host', 'unflushed', session} end
  end
  if have[1] ~= inc or have[2] then return {'revalidate', 1} end

  local dirty = call('SCARD', base .. 'd:' .. member)
  local size, values = tonumber(have[21] or 0) + 20 * dirty, {} -- digits of a revision and a date
  if not only_marks and dirty > MANY then return {'large', size} end
  local marks = call('SMEMBERS', base .. 'd:' .. member)
  spent = spent + MARK * dirty
  if with_letters then marks = without_letters(member, marks) end
  if not only_marks then
    size = size_of(hash, marks, size)
    if size > most then return {'large', size} end
    spent = spent + size
    if #marks > 0 then values = call('HMGET', hash, unpack(marks)) end
  end
  local host = session and call('HMGET', base .. 'h:s' .. session, unpack(NAMES)) or {}
  return {'ok', inc, string.format('%.0f', now()), have, marks, values, host, dirty - #marks}
end

local replies = {}
for i = 2, #KEYS do
  replies[i - 1] = not inc and {'register', 1} or spent < MOST and dirt_of(KEYS[i]) or {'later'}
end
return replies
