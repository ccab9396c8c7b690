#!lua
-- include: prelude writing
-- Counts messages and tokens of a session, gives it a title, and records that it is in use; changes no value.
--
-- KEYS   control of the bucket, hash of the session
-- ARGV   the eight of write.lua; messages, tokens to add; '1': the title replaces the one there is, '' only where there is none;
--        the title ('' none); then the part of the session, without operations (writing.lua)
-- Reply  as write.lua, then {birth, updated, title, messages, tokens, forked from}; {'limit', part, 0, 'counter'};
--        {'applied'}: before, and the session is not hot any more
-- Guards R1, R2 (only what the call changes), R3, R4, R5 (also for a copy of the call)

local parts = parse_parts(13)
local session = parts[1]

local function with_head(reply)
  reply[#reply + 1] = call('HMGET', session.hash, 'b', 'u', 't', 'm', 'k', 'q')
  return reply
end

local before = applied_before(session)
if before then
  if before[1] ~= 'ok' then return before end
  if is_over(session, before[2]) then return {'gone'} end
  return call('EXISTS', session.hash) == 1 and with_head(before) or {'applied'}
end
local refusal = check_parts(parts)
if refusal then return refuse(session, refusal) end

local h = call('HMGET', session.hash, 't', 'm', 'k')
local messages, tokens = combined('I', h[2] or '0', ARGV[9]), combined('I', h[3] or '0', ARGV[10])
if not messages or not tokens or math.max(#messages, #tokens) > 15 then return refuse(session, {'limit', 1, 0, 'counter'}) end
local head = {'m', messages, 'k', tokens}
if ARGV[11] == '1' or (ARGV[12] ~= '' and (h[1] or '') == '') then
  head[#head + 1] = 't'
  head[#head + 1] = ARGV[12]
end
local revision = next_digits(highest)
write_head(session, revision, head)
return with_head(report(parts, revision))
