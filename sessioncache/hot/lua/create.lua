#!lua
-- include: prelude writing gathered
-- Creates a session with its initial state, shared and temp: keys included, in one atomic step.
--
-- KEYS   as write.lua; the first part is the new session, its birth '+'
-- ARGV   the eight of write.lua; token ('' none, '*' generated id, which needs none); largest revision that SQL knows;
--        org, app, user, session id, title, forked from; of a session whose keys were gathered in pieces the birth that they bear,
--        its name, number and bytes of them ('', '', 0, 0 else); then the parts (writing.lua)
-- Reply  as write.lua, shared keys have the revision, a session that was gathered has that of its birth; {'exists'};
--        {'retry'}: the token is lost; {'pieces'}: not all of them are there, or they are outdated
-- Guards R1, R4, R3 (what SQL knew counts), R5 (a new birth), R12 (whole), R13 (create consumes the token), R14 (last cleared = birth - 1)

local parts = parse_parts(21)
local session = parts[1]
local GATHERED = ARGV[17] ~= ''
session.pieces = session.base .. 'p:' .. session.member .. ':' .. ARGV[18]
local before = applied_before(session)
if before then return before end
session.inc = enter(session.ctl)

if erased_until(session.base, string.sub(session.parents, 33, 64)) then return refuse(session, {'erased'}) end
local problem = load_scope(session)
if problem == 'revalidate' then return refuse(session, {'revalidate', 1}) end
if problem == nil and not session.deleted then return refuse(session, {'exists'}) end
if problem == 'cold' then
  if ARGV[9] == '' then return refuse(session, {'cold', 1}) end
  if ARGV[9] ~= '*' then
    if not holds_token(session.ctl, session.member, session.inc, ARGV[9]) then return refuse(session, {'retry'}) end
  end
  session.r, session.f = ZERO, ZERO
end
-- Nothing of an earlier life counts, only its revision does.
session.n, session.z, session.had, session.size, session.cleared, session.fresh, session.loaded = 0, 0, false, false, ZERO, true, true
highest = is_above(ARGV[10], session.r) and ARGV[10] or session.r
if GATHERED then
  session.n, session.z = tonumber(ARGV[19]), tonumber(ARGV[20])
  if not is_gathered(session, ARGV[17], {session}, highest) then return refuse(session, {'pieces'}) end
  highest = ARGV[17]
end

local refusal = check_parts(parts)
if refusal then return refuse(session, refusal) end

local revision = next_digits(highest)
local birth = GATHERED and ARGV[17] or revision
session.birth = birth
for _, p in ipairs(parts) do
  p.changed = p == session or #p.marks > 0
  if p == session then
    local head = {'i', p.inc, 'b', birth, 'c', rev_digits(rev_number(birth) - 1), 'o', ARGV[11], 'a', ARGV[12],
                  'w', ARGV[13], 's', ARGV[14], 'l', birth}
    local without = add_told(head, {'t', ARGV[15], 'q', ARGV[16]})
    if GATHERED then bear(p, birth, head) else write_scope(p, birth, head) end
    call('HDEL', p.hash, 'x', 'm', 'k', 'f', unpack(without))
    call('DEL', p.base .. 'temp:' .. string.sub(p.member, 2)) -- R5, R16: temp: keys die with their session
  elseif p.changed and p.kind == 't' then write_temp(p, birth, session)
  elseif p.changed then write_scope(p, revision) end
end
return report(parts, revision)
