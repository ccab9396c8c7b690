#!lua flags=allow-oom
-- include: prelude
-- Erases the keys that all sessions of a user share, and lets nothing new of the user in for a while.
--
-- KEYS   control of the bucket, hash of the user's scope
-- ARGV   microseconds for which writes are refused, the user;
--        of a scope that is not hot also: the token, largest revision that SQL knows, head fields and values
-- Reply  {'ok', revision, living keys, incarnation} {'register', 1} {'revalidate', 1} {'cold', 1} {'retry'}: the token is lost
-- Guards R1 (mark first), R13, R14 (last cleared; what lies in pieces), R15 (works when memory is full)

local ctl, hash = KEYS[1], KEYS[2]
local inc, delay = enter(ctl)
if not inc then return {'register', 1} end
local base, member = names(ctl, hash)
local h = call('HMGET', hash, 'i', 'r', 'y', 'n')
local cold = not h[1]
if cold then -- not hot: the caller has read SQL under a token
  if not ARGV[3] then return {'cold', 1} end
  if not holds_token(ctl, member, inc, ARGV[3]) then return {'retry'} end
  h = {inc, ARGV[4], false, false}
end
if h[1] ~= inc or h[3] then return {'revalidate', 1} end

local stamps = base .. 'erased'
for _, user in ipairs(call('HKEYS', stamps)) do
  if not erased_until(base, user) then call('HDEL', stamps, user) end
end
call('HSET', stamps, string.sub(member, 2), string.format('%.0f', now() + tonumber(ARGV[1])))
local user, index = string.sub(member, 2), base .. 'pieces'
for _, name in ipairs(call('ZRANGE', index, 0, -1)) do
  if string.sub(name, 1, 32) == user then
    local pieces = base .. 'p:' .. string.sub(name, 33)
    call('UNLINK', pieces, pieces .. ':d')
    call('ZREM', index, name)
  end
end
local revision = rev_digits(next_revision(rev_number(h[2])))
mark(base, member, hash, {'!'}, '', delay)
destroy_token(ctl, member)
if cold then call('HSET', hash, 'i', inc, unpack(ARGV, 5)) end
-- The name is left out of what is read meanwhile (install.lua): with it, it is found, and dropped.
call('HSET', hash, 'w', ARGV[2], 'r', revision, 'v', revision, 'h', revision, 'c', revision, 'n', 0, 'z', 0)
local dead, letters = {}, {}
for _, field in ipairs(call('HKEYS', hash)) do
  if string.sub(field, 1, 1) == '=' then
    dead[#dead + 1] = field
    letters[#letters + 1] = member .. field
  end
end
in_chunks('HDEL', hash, dead)
in_chunks('SREM', base .. 'd:' .. member, dead)
in_chunks('HDEL', base .. 'dead', letters)
announce(base .. 'w:' .. member, '?', revision, h[2], inc, {})
return {'ok', revision, tonumber(h[4] or 0), inc}
