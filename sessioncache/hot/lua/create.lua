#!lua
-- include: prelude writing
-- Creates a session with its initial state, shared and temp: keys included, in one atomic step.
--
-- KEYS   as write.lua; the first part is the new session, its birth '+'
-- ARGV   the four of write.lua; token ('' none, '*' generated id, which needs none); largest revision that SQL knows;
--        org, app, user, session id, title, forked from; then the parts (writing.lua)
-- Reply  as write.lua; {'exists'}; {'retry'}: the token is lost
-- Guards R1, R3 (what SQL knew counts), R5 (a new birth), R13 (create consumes the token), R14 (last cleared = birth - 1)

local parts = parse_parts(13)
local session = parts[1]
session.inc = enter(session.ctl)
if not session.inc then return {'register', 1} end

local problem = load_scope(session)
if problem == 'revalidate' then return {'revalidate', 1} end
if problem == nil and not session.deleted then return {'exists'} end
if problem == 'cold' then
  if ARGV[5] == '' then return {'cold', 1} end
  if ARGV[5] ~= '*' then
    local token = call('HGET', session.ctl, 't:' .. session.member)
    if not token or string.match(token, '^(.-)|%d+$') ~= session.inc .. '|' .. ARGV[5] then return {'retry'} end
  end
  session.r, session.f = ZERO, ZERO
end
-- Nothing of an earlier life counts, only its revision does.
session.n, session.z, session.cleared, session.fresh, session.loaded = 0, 0, 0, true, true
previous = math.max(rev_number(session.r), rev_number(ARGV[6]))

local refusal = check_parts(parts)
if refusal then return refusal end

local birth = next_revision(previous)
local revision = rev_digits(birth)
session.birth = revision
for _, p in ipairs(parts) do
  p.changed = p == session or #p.marks > 0
  if p == session then
    write_scope(p, revision, {'i', p.inc, 'b', revision, 'c', rev_digits(birth - 1), 'h', revision, 'u', revision,
                'o', ARGV[7], 'a', ARGV[8], 'w', ARGV[9], 's', ARGV[10], 't', ARGV[11], 'q', ARGV[12], 'm', 0, 'k', 0})
    call('HDEL', p.hash, 'x')
    call('DEL', p.base .. 'temp:' .. string.sub(p.member, 2)) -- R5, R16: temp: keys die with their session
  elseif p.changed and p.kind == 't' then write_temp(p, revision, session)
  elseif p.changed then write_scope(p, revision, {}) end
end
return report(parts, revision)
