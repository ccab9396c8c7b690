#!lua
-- include: prelude writing
-- Writes any mix of scopes in one atomic step: set, delete, increment, append, each optionally only if unchanged,
-- and set unless what is there is of a later time.
--
-- KEYS   per part: control of its bucket, hash of its scope (of a temp: part: the temp hash; the session's part is first then)
-- ARGV   four limits, the operation and the lease (writing.lua), then the parts; those of namespaces come behind their session
-- Reply  {'ok', revision, {incarnation, flushed through, changed, results, ...} per part} (see `report`)
--        {'register', part} {'revalidate', part} {'cold', part...} {'gone'} {'lease'} {'erased'}
--        {'stale', part, operation, ...} ({'stale'}: if_revision) {'limit', part, operation, 'value'|'keys'|'bytes'|'replaced'}
--        {'incarnation', the one there is}: not the one it may be applied under; {'applied'}: before, with a long result
--        {'mismatch', part, operation} {'compute', part, operation, text, revision}: the client computes what Lua cannot
-- Guards R1 (one step, its order), R2 (deltas), R3, R4 (once), R5 (birth, also for a copy of the call), R12 (no partial scope), R15 (dirty is pinned), R17

local parts = parse_parts(9)
local before = applied_before(parts[1])
if before then
  if before[1] ~= 'ok' then return before end
  if is_over(parts[1], before[2]) then return {'gone'} end
  -- R4: the results of a call that came before, where they were too long to remember, are those of then only if nobody has written since.
  for i, p in ipairs(parts) do
    for j = 1, p.count do
      local at = p.first + 4 * (j - 1)
      if (ARGV[at] == 'I' or ARGV[at] == 'A') and before[i + 2][4][j] == '' then
        local e = call('HGET', p.hash, '=' .. ARGV[at + 1])
        if not e or string.sub(e, 1, 9) ~= before[2] then return {'applied'} end
        before[i + 2][4][j] = string.sub(e, 10)
      end
    end
  end
  return before
end
local refusal = check_parts(parts)
if refusal then return refuse(parts[1], refusal) end

local any, within, more = false, false, false
for i = 1, #parts do
  local p = parts[i]
  p.changed = #p.marks > 0
  any = any or p.changed
  within = within or (p.changed and p.kind == 'n')
  more = more or (p.changed and p.kind == 'n' and p.had == 0)
end
local own = #parts > 1 and parts[2].kind == 'n' and parts[2] or parts[1]
if not any then return report(parts, own.v) end

local revision = next_digits(highest)
for i = 1, #parts do
  local p = parts[i]
  if p.changed and p.kind == 't' then write_temp(p, revision, parts[1])
  elseif p.changed then write_scope(p, revision) end
end
if within and not parts[1].changed then write_head(parts[1], revision, {}) end
if more then -- Whoever has listed the namespaces learns of it: l may be ahead of the revision where the clock is behind (install.lua).
  local l = call('HGET', parts[1].hash, 'l') or ZERO
  call('HSET', parts[1].hash, 'l', is_above(revision, l) and revision or rev_digits(rev_number(l) + 1))
end
return report(parts, revision)
