#!lua flags=allow-oom
-- include: prelude
-- Reads what of scopes SQL may lack, each with its scope revision and the incarnation, in one step.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   milliseconds a clean scope stays, most bytes that are told of one scope
-- Reply  per scope: {'ok', incarnation, microseconds now, {value or false per field of NAMES, then per mark}, {mark, ...},
--        {value or false per field of NAMES} of its session for a namespace, else {}, number of dead letters that were left
--        out}; a mark without a value above last cleared is a phantom
--        {'later'}: enough was read already; ask again.  {'large', bytes}: it is more than that; ask for it alone
--        {'missing'}: Redis evicted a dirty scope; its marks are gone now.  {'dropped'}: its session's life is over, or it is
--        clean by now, or the database refuses its head
--        {'register', 1} {'revalidate', 1} {'host', 'cold', 'revalidate' or 'unflushed', its session's scope}
-- Guards R6 (one reading; SQL learns of a session's life with all that it began with), R1 (marks without a field are found), R10 (dead letters are left out), R17

local ctl = KEYS[1]
local base = string.sub(ctl, 1, -4)
local inc = enter(ctl)

-- R6: the rows of a namespace come with the head of its session, and that head not before the session's own rows.  Where the
-- database refuses one of these as data, they come apart anyhow.
local function is_unborn(session)
  local host = 's' .. session
  local h = call('HMGET', base .. 'h:' .. host, 'b', 'f')
  if rev_number(h[2] or ZERO) >= rev_number(h[1]) or call('SISMEMBER', base .. 'd:' .. host, '!') == 0 then return false end
  local own = call('SMEMBERS', base .. 'd:' .. host)
  return not next(letters_of(base, host, own, values_of(base .. 'h:' .. host, own), '.') or {})
end

local NAMES = {'i', 'y', 'r', 'b', 'c', 'x', 'v', 'h', 'u', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'd', 'g', 'f'}
local MOST = 4194304 -- bytes after which no further scope is read: Lua holds the whole reply
local with_letters = call('EXISTS', base .. 'dead') == 1
local bytes = 0

-- Marks and values without those of dead letters.
local function without_letters(member, marks, have)
  local values, kept, left = {}, {}, {unpack(have, 1, #NAMES)}
  for i = 1, #marks do values[i] = have[#NAMES + i] end
  local dead = letters_of(base, member, marks, values, '1') or {}
  for i, field in ipairs(marks) do
    if not dead[field] then
      kept[#kept + 1] = field
      left[#NAMES + #kept] = values[i]
    end
  end
  return kept, left
end

local function dirt_of(hash)
  local _, member = names(ctl, hash)
  local marks = call('SMEMBERS', base .. 'd:' .. member)
  local asked = {unpack(NAMES)}
  for i, field in ipairs(marks) do asked[#NAMES + i] = field end
  local have = #asked <= CHUNK and call('HMGET', hash, unpack(asked)) or values_of(hash, asked)
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

  local dirty, own = #marks, 0
  for i = 1, dirty do own = own + #(have[#NAMES + i] or '') end
  if own > tonumber(ARGV[2]) then return {'large', own} end
  bytes = bytes + own
  if with_letters then marks, have = without_letters(member, marks, have) end
  local host = session and call('HMGET', base .. 'h:s' .. session, unpack(NAMES)) or {}
  return {'ok', inc, string.format('%.0f', now()), have, marks, host, dirty - #marks}
end

local replies = {}
for i = 2, #KEYS do
  replies[i - 1] = not inc and {'register', 1} or bytes < MOST and dirt_of(KEYS[i]) or {'later'}
end
return replies
