#!lua flags=allow-oom
-- include: prelude
-- Tells how much is dirty in all buckets, as some process measured it lately, and whose turn it is to measure again.
--
-- KEYS   control of bucket 0
-- ARGV   microseconds for which a measurement is good; then, from who has measured: dirty scopes, oldest since when
-- Reply  {dirty scopes, oldest since when (microseconds, 0 none), microseconds now, '1' if the caller is to measure now}
-- Guards R18 (bounded dirt, at a cost that does not grow with the number of clients)

local ctl = KEYS[1]
if ARGV[2] then
  call('HSET', ctl, 'pressure', ARGV[2] .. '|' .. ARGV[3] .. '|' .. string.format('%.0f', now()))
  call('HDEL', ctl, 'measuring') -- the turn is over, however long it might have lasted
end
local noted = call('HGET', ctl, 'pressure')
local dirty, oldest, at = 0, '0', 0
if noted then
  local d, o, t = string.match(noted, '^(%d+)|(%d+)|(%d+)$')
  dirty, oldest, at = tonumber(d), o, tonumber(t)
end
local turn = 0
if now() - at > tonumber(ARGV[1]) or at > now() then
  local taken = tonumber(call('HGET', ctl, 'measuring') or 0)
  if taken < now() or taken > now() + 60000000 then
    call('HSET', ctl, 'measuring', string.format('%.0f', now() + 5000000))
    turn = 1
  end
end
return {dirty, oldest, string.format('%.0f', now()), turn}
