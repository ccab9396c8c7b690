#!lua flags=allow-oom
-- include: prelude
-- Confirms that a session is nowhere: SQL did not have it, and the token under which SQL was read is still held.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   the token
-- Reply  {'none'} {'retry'} {'register', 1}
-- Guards R13 ("not found" only under the token)

local inc = enter(KEYS[1])
if not inc then return {'register', 1} end
local base, member = names(KEYS[1], KEYS[2])
if not holds_token(KEYS[1], member, inc, ARGV[1]) then return {'retry'} end
destroy_token(KEYS[1], member)
return {'none'}
