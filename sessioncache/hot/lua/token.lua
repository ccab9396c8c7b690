#!lua flags=allow-oom
-- include: prelude
-- Takes the tokens under which scopes that are not hot may be loaded from SQL: one slot a scope, one loader at a time.
--
-- KEYS   control of the bucket, hashes of scopes
-- ARGV   milliseconds after which another loader may take over, '1' for a revalidation; of a namespace that is to be loaded:
--        parents (see mark), '' else; milliseconds a clean scope stays; then a token (random) per scope
-- Reply  per scope: {'token', incarnation, org, app, user, session, session's scope, namespace of the hash, birth of a namespace,
--        keys and bytes of values of the hash}; whoever asks with the token that it has gets it again
--        {'hot'} (nothing to do) {'wait', milliseconds} {'register', 1} {'revalidate', 1} {'host', 'cold' or 'revalidate', its
--        session's scope} {'gone'}
-- Guards R12 (others wait), R13 (the slot, bound to the incarnation), R17 (nothing is read before SQL knows the incarnation)

local ctl = KEYS[1]
local inc = enter(ctl)
local lifetime, revalidates, parents, idle = tonumber(ARGV[1]) * 1000, ARGV[2] == '1', ARGV[3], ARGV[4]

local function take(hash, token)
  local base, member = names(ctl, hash)
  local h = call('HMGET', hash, 'i', 'y', 'o', 'a', 'w', 's', 'd', 'g', 'b', 'n', 'z')
  if not h[1] and revalidates then return {'hot'} end -- there is nothing to revalidate
  if string.sub(member, 1, 1) == 'n' then
    local session = revalidates and h[7] or parents
    local birth = call('HGET', base .. 'h:s' .. session, 'b') or ''
    local problem = host_problem(base, session, inc, revalidates and h[9] or birth)
    if problem == 'gone' and h[1] and revalidates then
      drop_scope(ctl, base, member, idle)
      return {'hot'}
    end
    if problem == 'gone' then return {'gone'} end
    if problem then return {'host', problem, session} end
    if h[1] and not revalidates and h[9] ~= birth then -- of an earlier life
      drop_scope(ctl, base, member, idle)
      h = {}
    end
    h[9] = birth
  end
  if h[1] and h[1] == inc and not h[2] then return {'hot'} end
  if h[1] and not revalidates then return {'revalidate', 1} end
  local held = call('HGET', ctl, 't:' .. member)
  if held then
    local owner, holder, expiry = string.match(held, '^(.-)|(.*)|(%d+)$')
    local left = tonumber(expiry) - now()
    -- A date absurdly far ahead comes from a clock that was set back since.
    if owner == inc and holder ~= token and left > 0 and left <= 60000000 then return {'wait', math.ceil(left / 1000)} end
  end
  call('HSET', ctl, 't:' .. member, inc .. '|' .. token .. '|' .. string.format('%.0f', now() + lifetime))
  return {'token', inc, h[3] or '', h[4] or '', h[5] or '', h[6] or '', h[7] or '', h[8] or '', h[9] or '', h[10] or '0', h[11] or '0'}
end

local replies = {}
for i = 2, #KEYS do replies[i - 1] = inc and take(KEYS[i], ARGV[i + 3]) or {'register', 1} end
return replies
