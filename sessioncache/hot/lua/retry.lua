#!lua flags=allow-oom
-- include: prelude
-- Has the entry of a dead letter flushed again.  The letter stays, as one that is being retried, until SQL has accepted or refused it.
--
-- KEYS   control of the bucket, hash of the scope
-- ARGV   field ('!' for the head)
-- Reply  {'ok', whether there was a dead letter}
-- Guards R10 (retried on command, and by itself now and then; reported until SQL has it)

local base, member = names(KEYS[1], KEYS[2])
local letter = call('HGET', base .. 'dead', member .. ARGV[1])
if not letter then return {'ok', 0} end
local is_head = ARGV[1] == '!'
call('HSET', base .. 'dead', member .. ARGV[1], string.sub(letter, 1, 10) .. '2' .. string.sub(letter, 12))
local waiting = is_head and wake_namespaces(base, string.sub(member, 2))
local marks = base .. 'd:' .. member
if call('SISMEMBER', marks, ARGV[1]) == 1 or is_head and call('EXISTS', marks) == 1 then
  call('ZADD', base .. 'dirty', now(), member)
  call('ZADD', base .. 'since', 'NX', now(), member)
  wake(base)
elseif not waiting then -- nothing is left of it that could be flushed
  call('HDEL', base .. 'dead', member .. ARGV[1])
end
return {'ok', 1}
