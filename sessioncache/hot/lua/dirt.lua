#!lua flags=allow-oom
-- include: prelude
-- Reads what of scopes SQL may lack, each with its scope revision and the incarnation, in one step.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   milliseconds a clean scope stays
-- Reply  per scope: {'ok', incarnation, microseconds now, {value or false per head field of HEAD}, {field, value, ...},
--        {phantom, ...}, the like of its session for a namespace, else {}}
--        {'missing'}: Redis evicted a dirty scope; its marks are gone now.  {'dropped'}: its session's life is over
--        {'register', 1} {'revalidate', 1} {'host', 'cold', 'revalidate' or 'unflushed', its session's scope}
-- Guards R6 (one reading; SQL learns of a session's life with all that it began with), R1 (marks without a field are found), R10 (dead letters are left out), R17

local ctl = KEYS[1]
local base = string.sub(ctl, 1, -4)
local inc = enter(ctl)

-- R6: the rows of a namespace come with the head of its session, and that head not before the session's own rows.  Where the
-- database refuses one of these as data, they come apart anyhow.
local function is_unborn(session)
  local host = 's' .. session
  local h = call('HMGET', base .. 'h:' .. host, 'b', 'f', 'p')
  local known = math.max(rev_number(h[2] or ZERO), rev_number(h[3] or ZERO))
  if known >= rev_number(h[1]) or call('SISMEMBER', base .. 'd:' .. host, '!') == 0 then return false end
  local own = call('SMEMBERS', base .. 'd:' .. host)
  return not next(letters_of(base, host, own, values_of(base .. 'h:' .. host, own), '.') or {})
end

local HEAD = {'r', 'b', 'c', 'x', 'v', 'h', 'u', 'o', 'a', 'w', 's', 't', 'm', 'k', 'q', 'd', 'g'}
local BEFORE = 2 + #HEAD -- what is read of a scope before the marked fields

local function dirt_of(hash)
  local _, member = names(ctl, hash)
  local marks = call('SMEMBERS', base .. 'd:' .. member)
  local asked = {'i', 'y', unpack(HEAD)}
  for i, field in ipairs(marks) do asked[BEFORE + i] = field end
  local have = values_of(hash, asked)
  if not have[1] then
    drop_scope(ctl, base, member, ARGV[1])
    return {'missing'}
  end
  local session = have[18]
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

  local cleared = rev_number(have[5] or ZERO)
  local fields, phantoms = {}, {}
  local values = {}
  for i = 1, #marks do values[i] = have[BEFORE + i] end
  local dead = letters_of(base, member, marks, values, '1') or {}
  for i, field in ipairs(marks) do
    local value = values[i]
    if field ~= '!' and not dead[field] then
      if not value or rev_number(value) <= cleared then phantoms[#phantoms + 1] = field
      else
        fields[#fields + 1] = field
        fields[#fields + 1] = value
      end
    end
  end
  local host = session and call('HMGET', base .. 'h:s' .. session, unpack(HEAD)) or {}
  return {'ok', inc, string.format('%.0f', now()), {unpack(have, 3, BEFORE)}, fields, phantoms, host}
end

local replies = {}
for i = 2, #KEYS do replies[i - 1] = inc and dirt_of(KEYS[i]) or {'register', 1} end
return replies
