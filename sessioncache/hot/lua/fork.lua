#!lua
-- include: prelude writing gathered
-- Forks a session: a new one with the private keys and namespaces of its parent, in one atomic step.
--
-- KEYS   control of the bucket, hash of the parent, hash of the new session, then per namespace: hash of the parent's, of the new one's
-- ARGV   the eight of write.lua (the lease is of the parent); birth of the parent; what l of it was when its namespaces were listed; parents
--        (see mark), session id, token ('' none, '*' generated id), largest revision that SQL knows of the new session;
--        of what was gathered in pieces the birth that it bears, its name, keys and bytes of the new session, '', then per
--        namespace keys, bytes, and the namespace ('', '' and no more else)
-- Reply  {'ok', revision, {incarnation, flushed through, 1, {}}}; {'exists'} {'retry'} {'erased'} {'lease'} {'gone'} {'register', 1}
--        {'revalidate', part} {'cold', part...}: 1 the parent, 2 the new session, then the namespaces;
--        {'namespaces'}: there may be more of them than were given; {'large'}: too much for one script, to be read and gathered in
--        pieces; {'pieces'}: not all of them are there, or they are outdated
-- Guards R1, R2 (the parent is not written), R4, R5 (a new birth; the run lease), R12 (whole scopes), R13, R14, R16 (temp: stays)

local MOST_KEYS, MOST_BYTES = 2000, 2097152 -- of all scopes together, that one script copies: MAX_CALL_KEYS, MAX_CALL_BYTES
local OF_A_SPACE = 20 -- keys that take as long as a namespace, however few it has
local ctl, GATHERED = KEYS[1], ARGV[15] ~= ''
local inc, delay = enter(ctl)
local function part(i, kind, birth, parents)
  local p = {ctl = ctl, hash = KEYS[i], kind = kind, birth = birth, if_revision = '', parents = parents, inc = inc,
             delay = delay, count = 0, fields = {}, values = {}, marks = {}, results = {}, changed = true, n = 0, z = 0}
  p.base, p.member = names(ctl, p.hash)
  return p
end

local parent, child = part(2, 's', ARGV[9], ''), part(3, 's', '+', ARGV[11])
local before = applied_before(parent)
if before then return before end
if erased_until(child.base, string.sub(child.parents, 33, 64)) then return refuse(parent, {'erased'}) end

local problem = load_scope(parent)
if problem == 'gone' then return refuse(parent, {'gone'}) end
if problem then return refuse(parent, {problem, 1}) end
if not is_fenced(parent) then return refuse(parent, {'lease'}) end
problem = load_scope(child)
if problem == 'revalidate' then return refuse(parent, {'revalidate', 2}) end
if not problem and not child.deleted then return refuse(parent, {'exists'}) end
if problem == 'cold' then
  if ARGV[13] == '' then return refuse(parent, {'cold', 2}) end
  if ARGV[13] ~= '*' and not holds_token(ctl, child.member, inc, ARGV[13]) then return refuse(parent, {'retry'}) end
  child.r, child.f = ZERO, ZERO
end

local previous = is_above(ARGV[14], child.r) and ARGV[14] or child.r
local pairs_, given, cold = {}, {}, {'cold'}
for i = 4, #KEYS, 2 do
  local from, to = part(i, 'n', '', ''), part(i + 1, 'n', '', string.sub(child.member, 2))
  local wrong = not GATHERED and load_scope(from, parent)
  if wrong == 'cold' then cold[#cold + 1] = 3 + #pairs_
  elseif wrong then return refuse(parent, {wrong, 3 + #pairs_}) end
  given[from.member] = true
  pairs_[#pairs_ + 1] = {from, to}
end

if GATHERED then -- the parent was read whole, its namespaces as well: what it is by now does not matter
  local scopes = {child}
  for i, pair in ipairs(pairs_) do scopes[i + 1] = pair[2] end
  for i, one in ipairs(scopes) do
    one.pieces = one.base .. 'p:' .. one.member .. ':' .. ARGV[16]
    one.n, one.z = tonumber(ARGV[14 + 3 * i]), tonumber(ARGV[15 + 3 * i])
  end
  if not is_gathered(child, ARGV[15], scopes, previous) then return refuse(parent, {'pieces'}) end
else
  if (call('HGET', parent.hash, 'l') or '') ~= ARGV[10] and #cold == 1 then return refuse(parent, {'namespaces'}) end
  if #cold > 1 then return refuse(parent, cold) end
  for _, member in ipairs(call('SMEMBERS', parent.base .. 'ns:' .. string.sub(parent.member, 2))) do
    if not given[member] and call('EXISTS', parent.base .. 'd:' .. member) == 1 then return refuse(parent, {'namespaces'}) end
  end
  local keys, bytes = parent.n + OF_A_SPACE * #pairs_, parent.z
  for _, pair in ipairs(pairs_) do keys, bytes = keys + pair[1].n, bytes + pair[1].z end
  if keys > MOST_KEYS or bytes > MOST_BYTES then return refuse(parent, {'large'}) end
end

local write = GATHERED and bear or write_scope
-- Every living entry of one scope, as it is to be written into another.
local function read(from, to)
  if GATHERED then return end
  local all = call('HGETALL', from.hash)
  for i = 1, #all, 2 do
    local e = all[i + 1]
    if string.sub(all[i], 1, 1) == '=' and lives(from, e) then put(to, all[i], string.sub(e, 10), nil) end
  end
end

local revision = GATHERED and ARGV[15] or next_digits(previous)
local cleared = rev_digits(rev_number(revision) - 1)
local h = call('HMGET', parent.hash, 'o', 'a', 'w', 't', 's')
read(parent, child)
local head = {'i', inc, 'b', revision, 'c', cleared, 'o', h[1], 'a', h[2], 'w', h[3], 's', ARGV[12], 'q', h[5],
              'l', #pairs_ > 0 and cleared or revision}
local without = add_told(head, {'t', h[4] or ''})
write(child, revision, head)
call('HDEL', child.hash, 'x', 'm', 'k', 'f', unpack(without))
call('DEL', child.base .. 'temp:' .. string.sub(child.member, 2))
for i, pair in ipairs(pairs_) do
  local from, to = pair[1], pair[2]
  read(from, to)
  if to.n > 0 then
    drop_scope(ctl, to.base, to.member, 0) -- what is left of an earlier life; the new session is dirty
    write(to, revision, {'i', inc, 'b', revision, 'c', cleared, 'o', h[1], 'a', h[2], 'w', h[3], 's', ARGV[12],
          'd', string.sub(child.member, 2), 'g', GATHERED and ARGV[19 + 3 * i] or call('HGET', from.hash, 'g')})
    call('SADD', to.base .. 'spaces', to.member)
  end
end
child.ops = parent.ops
return report({child}, revision)
