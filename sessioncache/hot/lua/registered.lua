#!lua flags=allow-oom
-- include: prelude
-- Records that SQL's fence names the bucket's incarnation: from now on it may be used.
--
-- KEYS   control of the bucket
-- ARGV   the incarnation that was registered ('': the one that there is, if SQL has ever known it: SQL is away),
--        '1' if Redis had forgotten something when it was made
-- Reply  {'ok'} {'retry'} (Redis has another one by now)
-- Guards R17 (nothing happens under an incarnation before SQL knows it)

local c = call('HMGET', KEYS[1], 'incarnation', 'replid', 'registered', 'run', 'fed')
if not c[1] or not has_all(c[2], c[4], c[5]) then return {'retry'} end
if ARGV[1] == '' and c[3] ~= '1' then return {'retry'} end
if ARGV[1] ~= '' and c[1] ~= ARGV[1] then return {'retry'} end
if c[3] ~= '1' then call('HDEL', KEYS[1], 'before', 'forgot') end
-- Also where another process was faster: only the one whose swap it was knows.
if ARGV[2] == '1' then call('HSET', KEYS[1], 'forgot', '1') end
call('HSET', KEYS[1], 'registered', '1', 'replid', replid())
return {'ok'}
