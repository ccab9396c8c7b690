#!lua flags=allow-oom
-- include: prelude
-- Takes the token under which a scope that is not hot may be loaded from SQL: one slot a scope, one loader at a time.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token (random), milliseconds after which another loader may take over, '1' for a revalidation;
--        of a namespace that is to be loaded: parents (see mark), '' else; milliseconds a clean scope stays
-- Reply  {'token', incarnation, org, app, user, session, session's scope, namespace of the hash, birth of a namespace} {'hot'} (nothing to do)
--        {'wait', milliseconds} {'register', 1} {'revalidate', 1} {'host', 'cold' or 'revalidate', its session's scope} {'gone'}
-- Guards R12 (others wait), R13 (the slot, bound to the incarnation), R17 (nothing is read before SQL knows the incarnation)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
local h = call('HMGET', KEYS[2], 'i', 'y', 'o', 'a', 'w', 's', 'd', 'g', 'b')
if not h[1] and ARGV[3] == '1' then return {'hot'} end -- there is nothing to revalidate
if string.sub(member, 1, 1) == 'n' then
  local session = ARGV[3] == '1' and h[7] or ARGV[4]
  local birth = call('HGET', base .. 'h:s' .. session, 'b') or ''
  local problem = host_problem(base, session, inc, ARGV[3] == '1' and h[9] or birth)
  if problem == 'gone' and h[1] and ARGV[3] == '1' then
    drop_scope(KEYS[1], base, member, ARGV[5])
    return {'hot'}
  end
  if problem == 'gone' then return {'gone'} end
  if problem then return {'host', problem, session} end
  if h[1] and ARGV[3] ~= '1' and h[9] ~= birth then -- of an earlier life
    drop_scope(KEYS[1], base, member, ARGV[5])
    h = {}
  end
  h[9] = birth
end
if h[1] and h[1] == inc and not h[2] then return {'hot'} end
if h[1] and ARGV[3] ~= '1' then return {'revalidate', 1} end
local held = call('HGET', KEYS[1], 't:' .. member)
if held then
  local owner, expiry = string.match(held, '^(.-)|.*|(%d+)$')
  local left = tonumber(expiry) - now()
  -- A date absurdly far ahead comes from a clock that was set back since.
  if owner == inc and left > 0 and left <= 60000000 then return {'wait', math.ceil(left / 1000)} end
end
call('HSET', KEYS[1], 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
return {'token', inc, h[3] or '', h[4] or '', h[5] or '', h[6] or '', h[7] or '', h[8] or '', h[9] or ''}
