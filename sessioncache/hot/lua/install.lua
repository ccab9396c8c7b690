#!lua
-- include: prelude
-- Brings a scope that was read from SQL into being, if nobody else did or could have since the reading.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds a clean scope stays, number of fields that were staged before;
--        of a namespace parents (see mark) and birth of its session, '' and '' else; then fields and values
-- Reply  {'ok'} {'retry'} (the token or something staged is lost, or another did it, or the session changed) {'register', 1}
-- Guards R12 (whole), R13 (consumes the token; never over an existing hash), R14 (an erased user stays nameless), R15 (a
--        clean hash gets a TTL, a session with a dirty namespace none)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
if call('EXISTS', KEYS[2]) == 1 then return {'retry'} end
if ARGV[4] ~= '' and host_problem(base, ARGV[4], inc, ARGV[5]) then return {'retry'} end
destroy_token(KEYS[1], member)
if ARGV[3] ~= '0' then
  local staged = base .. 'p:' .. member .. ':' .. ARGV[1]
  if call('HLEN', staged) ~= tonumber(ARGV[3]) then -- it has a TTL: a chunk may have been evicted before the next came
    call('UNLINK', staged)
    return {'retry'}
  end
  call('RENAME', staged, KEYS[2])
end
call('HSET', KEYS[2], 'i', inc, unpack(ARGV, 6))
call('PEXPIRE', KEYS[2], ARGV[2])
-- R2: of a key that was deleted long ago SQL may know nothing any more; then the values count as changed since.
local v = ARGV[4] ~= '' and rev_number(call('HGET', KEYS[2], 'v') or ZERO) or 0
if v > 0 and v < now() - 86400000000 then call('HSET', KEYS[2], 'v', call('HGET', KEYS[2], 'r')) end
if string.sub(member, 1, 1) == 's' and has_dirty_namespaces(base, string.sub(member, 2)) then call('PERSIST', KEYS[2]) end
-- Of an erased user no name is kept, and nothing for longer than writes are refused: then it is read anew, with the name.
local erased = string.sub(member, 1, 1) == 'u' and erased_until(base, string.sub(member, 2))
if erased then
  call('HDEL', KEYS[2], 'w')
  call('PEXPIREAT', KEYS[2], math.floor(erased / 1000) - 1)
end
-- What is forked has all namespaces: whoever lists them learns that there may be one more.  Never the birth again, hence above r.
local host = base .. 'h:s' .. (ARGV[4] ~= '' and ARGV[4] or string.sub(member, 2))
if ARGV[4] ~= '' then call('SADD', base .. 'spaces', member) end
if ARGV[4] ~= '' or string.sub(member, 1, 1) == 's' then
  local h = call('HMGET', host, 'l', 'r')
  call('HSET', host, 'l', rev_digits(next_revision(math.max(rev_number(h[1] or ZERO), rev_number(h[2] or ZERO)))))
end
call('HINCRBY', KEYS[1], 'hydrates', 1)
return {'ok'}
