#!lua flags=allow-oom
-- include: prelude
-- Says which incarnation a bucket has, and makes a new one where Redis may have forgotten something.
--
-- KEYS   control of the bucket
-- ARGV   a random id for a new incarnation, an incarnation that must not be used any more ('' none), '1' if SQL has replaced that one
-- Reply  {incarnation, '0' not registered, '1' registered, '2' registered, and SQL's fence has to name it still,
--        the incarnation before one that is not registered ('' none, or it had more), the incarnation that a new one replaces
--        ('' none, or Redis may have forgotten something of it)}
--        {'contended'}: SQL has replaced this one, too, and the one before less than a minute ago
-- Guards R17 (missing control, or a replid that shows forgetting: a new incarnation; a replaced one never comes back)

local MINUTE = 60000000

local c = call('HMGET', KEYS[1], 'incarnation', 'replid', 'registered', 'run', 'fed', 'before', 'replaced')
local whole = c[1] and has_all(c[2], c[4], c[5]) and c[1] or ''
if whole ~= '' and whole ~= ARGV[2] then
  if c[3] == '0' then return {c[1], 0, c[6] or '', ''} end
  return {c[1], c[2] == replid() and 1 or 2, '', ''}
end
if ARGV[3] == '1' and c[1] == ARGV[2] then
  local age = now() - tonumber(c[7] or 0)
  if age >= 0 and age < MINUTE then return {'contended'} end
  call('HSET', KEYS[1], 'replaced', string.format('%.0f', now()))
end
local before = c[3] == '0' and c[6] or c[1] or ''
-- What was replaced, or what a replica had received when it was promoted, may be less than all.
if c[1] == ARGV[2] or was_promoted() then before = '' end
local run, fed = origin()
call('HSET', KEYS[1], 'incarnation', ARGV[1], 'replid', replid(), 'run', run, 'fed', fed, 'registered', '0', 'before', before)
announce(string.sub(KEYS[1], 1, -4) .. 'w', '?', ZERO, ZERO, ARGV[1], {})
return {ARGV[1], 0, before, whole}
