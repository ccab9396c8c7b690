#!lua flags=allow-oom
-- include: prelude
-- Takes the token under which a scope that is not hot may be loaded from SQL: one slot a scope, one loader at a time.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token (random), milliseconds after which another loader may take over, '1' for a revalidation
-- Reply  {'token', incarnation, org, app, user, session of the hash} {'hot'} (nothing to do) {'wait', milliseconds} {'register', 1} {'revalidate', 1}
-- Guards R12 (others wait), R13 (the slot, bound to the incarnation), R17 (nothing is read before SQL knows the incarnation)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local h = call('HMGET', KEYS[2], 'i', 'y', 'o', 'a', 'w', 's')
if h[1] and h[1] == inc and not h[2] then return {'hot'} end
if h[1] and ARGV[3] ~= '1' then return {'revalidate', 1} end
if not h[1] and ARGV[3] == '1' then return {'hot'} end
local base, member = names(KEYS[1], KEYS[2])
local held = call('HGET', KEYS[1], 't:' .. member)
if held then
  local owner, expiry = string.match(held, '^(.-)|.*|(%d+)$')
  local left = tonumber(expiry) - now()
  -- A date absurdly far ahead comes from a clock that was set back since.
  if owner == inc and left > 0 and left <= 60000000 then return {'wait', math.ceil(left / 1000)} end
end
call('HSET', KEYS[1], 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
return {'token', inc, h[3] or '', h[4] or '', h[5] or '', h[6] or ''}
