#!lua
-- include: prelude writing
-- Writes any mix of scopes in one atomic step: set, delete, increment, append, each optionally only if unchanged,
-- and set unless what is there is of a later time.
--
-- KEYS   per part: control of its bucket, hash of its scope (of a temp: part: the temp hash; the session's part is first then)
-- ARGV   four limits, the operation and the lease (writing.lua), then the parts; those of namespaces come behind their session
-- Reply  {'ok', revision, {incarnation, flushed through, changed, results} per part}
--        {'register', part} {'revalidate', part} {'cold', part...} {'gone'} {'lease'} {'erased'}
--        {'stale', part, operation, ...} ({'stale'}: if_revision) {'limit', part, operation, 'value'|'keys'|'bytes'}
--        {'incarnation', the one there is}: not the one it may be applied under; {'applied'}: before, with a long result
--        {'mismatch', part, operation} {'compute', part, operation, text, revision}: the client computes what Lua cannot
-- Guards R1 (one step, its order), R2 (deltas), R3, R4 (once), R5 (birth), R12 (no partial scope), R15 (dirty is pinned), R17

local parts = parse_parts(9)
local before = applied_before(parts[1])
if before then return reply_again(parts, before) end
local refusal = check_parts(parts)
if refusal then return refuse(parts[1], refusal) end

local any, within, more = false, false, false
for _, p in ipairs(parts) do
  p.changed = #p.marks > 0
  any = any or p.changed
  within = within or (p.changed and p.kind == 'n')
  more = more or (p.changed and p.kind == 'n' and p.had == 0)
end
local own = #parts > 1 and parts[2].kind == 'n' and parts[2] or parts[1]
if not any then return report(parts, own.v) end

local revision = rev_digits(next_revision(highest))
for _, p in ipairs(parts) do
  if p.changed and p.kind == 't' then write_temp(p, revision, parts[1])
  elseif p.changed then write_scope(p, revision, p.kind == 's' and {'h', revision, 'u', revision} or {}) end
end
if within and not parts[1].changed then write_head(parts[1], revision, {}) end
if more then call('HSET', parts[1].hash, 'l', revision) end -- whoever has listed the namespaces is told
return report(parts, revision)
