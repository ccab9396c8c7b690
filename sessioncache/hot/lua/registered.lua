#!lua flags=allow-oom
-- include: prelude
-- Notes that SQL's fence names the bucket's incarnation: from now on it may be worked under.
--
-- KEYS   control of the bucket
-- ARGV   the incarnation that was registered
-- Reply  {'ok'} {'retry'} (Redis has another one by now)
-- Guards R17 (nothing happens under an incarnation before SQL knows it)

local c = call('HMGET', KEYS[1], 'incarnation', 'replid')
if c[1] ~= ARGV[1] or c[2] ~= replid() then return {'retry'} end
call('HSET', KEYS[1], 'registered', '1')
return {'ok'}
