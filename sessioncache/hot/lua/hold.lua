#!lua flags=allow-oom
-- include: prelude
-- Keeps a loader's token, and what it has staged, while it works.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   the token, milliseconds after which another loader may take over
-- Reply  {'ok'} {'retry'} (the token is lost) {'register', 1}
-- Guards R13 (a loader keeps its token as long as it works)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
call('HSET', KEYS[1], 't:' .. member, inc .. '|' .. ARGV[1] .. '|' .. string.format('%.0f', now() + tonumber(ARGV[2]) * 1000))
call('PEXPIRE', base .. 'p:' .. member .. ':' .. ARGV[1], ARGV[2])
return {'ok'}
