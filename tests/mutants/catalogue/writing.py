"""Writing: R1 to R5, R12, R14 to R16, as far as the scripts that write keep them."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_WRITING, _LIVES = "scripts/test_writing.py::", "scripts/test_lives.py::"
_REVISIONS, _EXPIRY = "scripts/test_revisions.py::", "scripts/test_expiry.py::"
_DIGITS = "unit/test_scripts.py::"

MUTATIONS = (
    *(
        Mutation(
            f"what has too many {what} refuses whatever makes it no larger",
            "R12",
            "sessioncache/hot/lua/writing.lua",
            guard,
            "",
            ("scripts/test_writing.py::test_what_is_above_a_limit_may_become_smaller_and_is_no_obstacle",),
        )
        for what, guard in (
            ("keys", " and p.n > (p.had or 0)"),
            ("bytes", " and p.z > (p.size or 0)"),
            ("bytes in one value", " and not (e and size <= json_size(e, 10))"),
        )
    ),
    *(
        Mutation(
            f"a call is {what}",
            "R12",
            file,
            guard,
            other,
            (test,),
        )
        for what, file, guard, other, test in (
            (
                "never too large",
                "sessioncache/handle/base.py",
                "        write.check_size()\n",
                "",
                "conformance/test_memory.py::TestLimits::test_one_call_changes_at_most_2000_keys",
            ),
            (
                "measured scope by scope",
                "sessioncache/hot/write.py",
                "                self.keys += 1\n",
                "                self.keys = len(part.operations)\n",
                "unit/test_limits.py::test_all_scopes_of_a_call_count_together",
            ),
            (
                "noted however large it is",
                "sessioncache/batch/calls.py",
                "        check_size(len(kept) + len(gone), size)\n",
                "",
                "conformance/test_memory.py::TestLimits::test_a_call_of_a_batch_is_refused_where_it_is_noted",
            ),
            (
                "free to read what it replaces",
                _LUA + "writing.lua",
                "p.count > FEW and replaces_much(p)",
                "false",
                _WRITING + "test_what_one_call_replaces_is_not_read_where_it_is_too_much",
            ),
        )
    ),
    Mutation(
        "mark after the value",
        "R1",
        _LUA + "writing.lua",
        """  mark(p.base, p.member, p.hash, p.marks, p.parents, p.delay)
  destroy_token(p.ctl, p.member)
  if p.wiped then told = wipe(p, revision) end
  for i = 2, #values, 2 do values[i] = revision .. values[i] end
""",
        """  destroy_token(p.ctl, p.member)
  if p.wiped then told = wipe(p, revision) end
  for i = 2, #values, 2 do values[i] = revision .. values[i] end
  call('HSET', p.hash, unpack(values))
  mark(p.base, p.member, p.hash, p.marks, p.parents, p.delay)
""",
        (_WRITING + "test_marks_index_and_persist_come_before_the_values",),
    ),
    Mutation(
        "phantom marks kept",
        "R1",
        _LUA + "ack.lua",
        "if not value or not is_above(value, cleared) then gone[#gone + 1] = ARGV[i] end",
        "",
        ("scripts/test_acknowledging.py::test_a_mark_without_a_field_goes_with_the_acknowledgement",),
    ),
    Mutation(
        "a key's expected revision ignored",
        "R2",
        _LUA + "writing.lua",
        "  elseif expected ~= '*' and expected ~= (e and string.sub(e, 1, 9) or '') then\n",
        "  elseif false then\n",
        (_WRITING + "test_a_write_only_if_the_key_is_unchanged_is_refused_when_it_changed",),
    ),
    Mutation(
        "if_revision ignored",
        "R2",
        _LUA + "writing.lua",
        "  if p.if_revision ~= '' and p.if_revision ~= p.v then return 'stale' end\n",
        "",
        (_WRITING + "test_if_revision_refuses_a_scope_that_moved_on",),
    ),
    Mutation(
        "revisions by TIME only",
        "R3",
        _LUA + "prelude.lua",
        "return is_above(digits, previous) and digits or rev_digits(rev_number(previous) + 1)",
        "return digits",
        (_REVISIONS + "test_a_revision_grows_when_the_clock_is_set_back",),
    ),
    Mutation(
        "revisions of deletes by TIME only",
        "R3",
        _LUA + "prelude.lua",
        "return math.max(previous + 1, now())",
        "return now()",
        (_REVISIONS + "test_a_delete_grows_when_the_clock_is_set_back",),
    ),
    Mutation(
        "revisions compared by their first digits",
        "R3",
        _LUA + "prelude.lua",
        "  return ((g - p) * 128 + h - q) * 128 + i - r > 0\n",
        "  return false\n",
        (_DIGITS + "test_digits_are_compared_as_the_numbers_that_they_stand_for",),
    ),
    Mutation(
        "a revision below one of the scopes that are written",
        "R3",
        _LUA + "writing.lua",
        "    if is_above(p.r, highest) then highest = p.r end\n",
        "",
        (_REVISIONS + "test_a_write_is_above_what_sql_knew_when_the_scope_was_hydrated",),
    ),
    Mutation(
        "create ignores what SQL knew",
        "R3",
        _LUA + "create.lua",
        "highest = is_above(ARGV[10], session.r) and ARGV[10] or session.r",
        "highest = session.r",
        (_REVISIONS + "test_a_create_is_above_what_sql_knew_of_the_id",),
    ),
    Mutation(
        "hydrate ignores what SQL knew",
        "R3",
        "sessioncache/coordination/hydration.py",
        "fields[Field.REVISION] = encode_revision(stored.known)",
        "fields[Field.REVISION] = encode_revision(stored.head.revision)",
        ("both_tiers/test_hydrated_revisions.py::test_a_write_after_a_hydrate_is_above_all_that_was_purged",),
    ),
    Mutation(
        "unpadded revisions",
        "R3",
        "sessioncache/primitives/revisions.py",
        ".translate(_FROM_STANDARD)[-DIGITS:]",
        '.translate(_FROM_STANDARD).lstrip(b"-")',
        ("unit/test_revisions.py::test_digits_are_ordered_as_the_numbers_are",),
    ),
    Mutation(
        "unpadded revisions in Lua",
        "R3",
        _LUA + "prelude.lua",
        "  for _ = 1, 9 do\n    local d = n % 64",
        "  while n > 0 do\n    local d = n % 64",
        ("both_tiers/test_hydrated_revisions.py::test_a_revision_has_nine_digits_however_early_the_clock",),
    ),
    Mutation(
        "digits compared by the locale",
        "R3",
        _LUA + "ack.lua",
        "if not holds_back and is_above(R, h[4] or ZERO) then",
        "if not holds_back and R > (h[4] or ZERO) then",
        ("scripts/test_collation.py",),
    ),
    Mutation(
        "blind retry",
        "R4",
        "sessioncache/hot/idempotency.py",
        'args = [*before, _new_id() if under else b"", under, LIFETIME, *after]',
        'args = [*before, b"", under, LIFETIME, *after]',
        ("both_tiers/test_idempotency.py::test_a_call_whose_answer_was_lost_is_applied_once",),
    ),
    Mutation(
        "operation not remembered",
        "R4",
        _LUA + "prelude.lua",
        "  call('HSET', base .. 'ops:' .. which, op, type(reply) == 'string' and reply or cjson.encode(reply))\n",
        "",
        ("both_tiers/test_idempotency.py::test_a_call_whose_answer_was_lost_is_applied_once",),
    ),
    Mutation(
        "delete forgets its operation",
        "R4",
        _LUA + "delete.lua",
        "remember(ctl, base, ARGV[3], ops, tonumber(ARGV[5]), told or reply)\n",
        "",
        ("both_tiers/test_idempotency.py::test_a_delete_whose_answer_was_lost_says_that_the_session_existed",),
    ),
    Mutation(
        "refusal not remembered",
        "R4",
        _LUA + "writing.lua",
        "  remember(first.ctl, first.base, OPERATION, first.ops, LIFETIME, told)\n",
        "",
        ("both_tiers/test_idempotency.py::test_a_copy_of_a_refused_call_that_comes_late_changes_nothing",),
    ),
    Mutation(
        "one generation of operations",
        "R4",
        _LUA + "prelude.lua",
        " or call('HGET', base .. 'ops:1', op))",
        ")",
        (
            "both_tiers/test_idempotency.py::test_an_operation_is_remembered_for_its_lifetime_whichever_generation_it_fell_into",
        ),
    ),
    Mutation(
        "repeat across incarnations",
        "R4",
        _LUA + "writing.lua",
        "  if inc ~= UNDER then return {'incarnation', inc} end\n",
        "",
        ("both_tiers/test_idempotency.py::test_a_call_is_not_repeated_in_another_incarnation",),
    ),
    Mutation(
        "delete repeated across incarnations",
        "R4",
        _LUA + "delete.lua",
        "if ARGV[3] ~= '' and ARGV[4] ~= inc then return {'incarnation', inc} end\n",
        "",
        ("both_tiers/test_idempotency.py::test_a_delete_is_not_repeated_in_another_incarnation",),
    ),
    Mutation(
        "no birth check on write",
        "R5",
        _LUA + "writing.lua",
        "(p.deleted or (p.birth ~= '' and h[3] ~= p.birth))",
        "p.deleted",
        (_LIVES + "test_a_write_through_a_handle_of_an_earlier_life_is_refused",),
    ),
    Mutation(
        "no birth check on read",
        "R5",
        _LUA + "read.lua",
        "(h[3] or (life ~= '' and life ~= h[2]))",
        "h[3]",
        (_LIVES + "test_a_read_through_a_handle_of_an_earlier_life_is_refused",),
    ),
    Mutation(
        "no birth check on delete",
        "R5",
        _LUA + "delete.lua",
        "if ARGV[1] ~= '' and (h[4] or ARGV[1] ~= h[3]) then",
        "if ARGV[1] ~= '' and h[4] then",
        (_LIVES + "test_a_delete_through_a_handle_of_an_earlier_life_is_refused",),
    ),
    Mutation(
        "no birth check on temp:",
        "R5",
        _LUA + "writing.lua",
        "p.fresh = h[3] ~= session.birth",
        "p.fresh = false",
        ("both_tiers/test_temp.py::test_temp_keys_of_an_earlier_life_are_not_met_by_a_write",),
    ),
    Mutation(
        "no tombstone of a key",
        "R14",
        _LUA + "writing.lua",
        "  else call('HSET', p.hash, 'r', revision, 'v', revision, unpack(values)) end\n  announce",
        """  else call('HSET', p.hash, 'r', revision, 'v', revision, unpack(values)) end
  for i = 1, #values, 2 do
    if string.sub(values[i], 1, 1) == '=' and #values[i + 1] == 9 then call('HDEL', p.hash, values[i]) end
  end
  announce""",
        (_LIVES + "test_the_tombstone_of_a_key_stays_until_it_is_acknowledged",),
    ),
    Mutation(
        "tombstone of a key dropped before its acknowledgement",
        "R14",
        _LUA + "dirt.lua",
        "  if with_letters then marks = ",
        "  for i, value in ipairs(values_of(hash, marks)) do\n"
        "    if value and #value == 9 then call('HDEL', hash, marks[i]) end\n"
        "  end\n"
        "  if with_letters then marks = ",
        (_LIVES + "test_the_tombstone_of_a_key_stays_until_it_is_acknowledged",),
    ),
    Mutation(
        "no tombstone of a session",
        "R14",
        _LUA + "delete.lua",
        "call('HSET', hash, 'x', revision,",
        "call('HSET', hash,",
        (_LIVES + "test_a_tombstone_refuses_reads_and_writes",),
    ),
    Mutation(
        "no last cleared",
        "R14",
        _LUA + "create.lua",
        "'c', rev_digits(rev_number(birth) - 1)",
        "'c', ZERO",
        (_LIVES + "test_last_cleared_is_the_birth_less_one",),
    ),
    Mutation(
        "entries at last cleared are read",
        "R14",
        "sessioncache/hot/messages.py",
        "        if cleared == ZERO:\n",
        "        if True:\n",
        (_LIVES + "test_an_entry_at_last_cleared_is_not_read",),
    ),
    Mutation(
        "entries at last cleared are added to",
        "R14",
        _LUA + "writing.lua",
        "return #e > 9 and (p.cleared == ZERO or is_above(e, p.cleared))",
        "return #e > 9",
        (_LIVES + "test_an_entry_at_last_cleared_counts_nothing_when_incremented",),
    ),
    Mutation(
        "a changed count of keys is not written",
        "R12",
        _LUA + "writing.lua",
        "  if p.n ~= p.had then\n",
        "  if not p.had then\n",
        (_WRITING + "test_writers_of_different_keys_both_keep_them",),
    ),
    Mutation(
        "a changed count of bytes is not written",
        "R12",
        _LUA + "writing.lua",
        "  if p.z ~= p.size then\n",
        "  if not p.size then\n",
        (_WRITING + "test_writers_of_different_keys_both_keep_them",),
    ),
    Mutation(
        "no PERSIST",
        "R15",
        _LUA + "prelude.lua",
        "  call('PERSIST', hash)\nend",
        "end",
        (_EXPIRY + "test_a_dirty_scope_outlives_any_silence",),
    ),
    Mutation(
        "EXPIRE without XX",
        "R15",
        _LUA + "keep.lua",
        "if left >= 0 and left < tonumber(ttl) then",
        "if left < tonumber(ttl) then",
        (_EXPIRY + "test_what_is_dirty_stays_pinned_where_what_is_read_beside_it_is_renewed",),
    ),
    Mutation(
        "temp: keys marked dirty",
        "R16",
        _LUA + "write.lua",
        "if p.changed and p.kind == 't' then",
        "if false then",
        (_LIVES + "test_temp_keys_are_no_dirt_and_move_no_revision_of_the_session",),
    ),
    Mutation(
        "temp: keys taken for the session's",
        "R16",
        "sessioncache/primitives/names.py",
        "return Key(KeyScope.TEMP,",
        "return Key(KeyScope.SESSION,",
        ("both_tiers/test_temp.py::test_temp_values_never_reach_sql",),
    ),
    Mutation(
        "temp: keys outlive their session",
        "R16",
        _LUA + "delete.lua",
        "call('UNLINK', base .. 'temp:' .. session, base",
        "call('UNLINK', base",
        (_LIVES + "test_temp_keys_die_with_their_session",),
    ),
    Mutation(
        "a repeat that another password turns away passes for a refusal",
        "R4",
        "sessioncache/hot/idempotency.py",
        "MemoryFullError, ConfigurationError, DamagedValueError):",
        "MemoryFullError, DamagedValueError):",
        ("worker/test_idempotency.py::test_r4_a_repeat_that_meets_another_password_leaves_the_outcome_unknown",),
    ),
)
