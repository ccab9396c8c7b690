-- Shared by create.lua and fork.lua: scopes that are too large for one script.  Their entries, with the revision of the birth, and
-- their marks lie under other names already (gather.lua), and get those of the scope all at once.

-- Whether all of it is there, and its revision above all that the session had: else the caller begins anew.  It has a TTL, and may
-- have been evicted; a life may have come and gone meanwhile.
local function is_gathered(p, birth, scopes, previous)
  for _, one in ipairs(scopes) do
    if call('HLEN', one.pieces) ~= one.n or call('SCARD', one.pieces .. ':d') ~= one.n then return false end
  end
  return is_above(birth, previous) and is_above(birth, call('HGET', p.hash, 'e') or ZERO)
end

-- Marks, then the hash, which is complete before it gets its name.  `head`: pairs of head fields beside those that count.
local function bear(p, birth, head)
  local marks, of_session = p.pieces .. ':d', p.kind == 's'
  if of_session then call('SADD', marks, '!') end
  mark(p.base, p.member, p.hash, of_session and {'!'} or {}, p.parents, p.delay)
  call('PERSIST', marks)
  call('RENAME', marks, p.base .. 'd:' .. p.member)
  destroy_token(p.ctl, p.member)
  call('HSET', p.pieces, 'r', birth, 'v', birth, 'n', string.format('%.0f', p.n), 'z', string.format('%.0f', p.z), unpack(head))
  if of_session then call('HSET', p.pieces, 'h', birth, 'u', birth) end
  call('PERSIST', p.pieces)
  call('RENAME', p.pieces, p.hash)
  announce(p.base .. 'w:' .. p.member, 'w', birth, p.v or ZERO, p.inc, {'*'})
end
