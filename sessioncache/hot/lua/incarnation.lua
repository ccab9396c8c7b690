#!lua flags=allow-oom
-- include: prelude
-- Says which incarnation a bucket has, and makes a new one where Redis may have forgotten something.
--
-- KEYS   control of the bucket
-- ARGV   a random id for a new incarnation, an incarnation that must not be used any more ('' none)
-- Reply  {incarnation, whether SQL is known to know it}
-- Guards R17 (missing control or another replid: a new incarnation; a replaced one never comes back)

local c = call('HMGET', KEYS[1], 'incarnation', 'replid', 'registered')
if not c[1] or c[2] ~= replid() or c[1] == ARGV[2] then
  call('HSET', KEYS[1], 'incarnation', ARGV[1], 'replid', replid(), 'registered', '0')
  announce(string.sub(KEYS[1], 1, -4) .. 'w', '?', ZERO, ZERO, ARGV[1], {})
  return {ARGV[1], 0}
end
return {c[1], tonumber(c[3])}
