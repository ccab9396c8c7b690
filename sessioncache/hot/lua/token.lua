#!lua flags=allow-oom
-- include: prelude
-- Takes the token under which a scope that is not hot may be loaded from SQL: one slot a scope, one loader at a time.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token (random), milliseconds after which another loader may take over
-- Reply  {'token', incarnation} {'hot'} {'wait', milliseconds} {'register', 1} {'revalidate', 1}
-- Guards R12 (others wait), R13 (the slot, bound to the incarnation), R17 (nothing is read before SQL knows the incarnation)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local have = call('HGET', KEYS[2], 'i')
if have then
  if have == inc then return {'hot'} end
  return {'revalidate', 1}
end
local base, member = names(KEYS[1], KEYS[2])
local held = call('HGET', KEYS[1], 't:' .. member)
if held then
  local owner, expiry = string.match(held, '^(.-)|.*|(%d+)$')
  local left = tonumber(expiry) - now()
  -- A date absurdly far ahead comes from a clock that was set back since.
  if owner == inc and left > 0 and left <= 60000000 then return {'wait', math.ceil(left / 1000)} end
end
call('HSET', KEYS[1], 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
return {'token', inc}
