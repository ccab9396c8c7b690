"""Namespaces, and erasing a user: what must go with a life, and what must not."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA, _DURABILITY = "sessioncache/hot/lua/", "sessioncache/durability.py"
_ERASED, _SPACES = "gaps/test_erased.py::", "gaps/test_spaces.py::"
_EVIDENCE, _CLEARS = "gaps/test_space_evidence.py::", "gaps/test_clears.py::"

MUTATIONS = (
    Mutation(
        "a delete remembers names",
        "R4",
        _LUA + "delete.lua",
        "remember(ctl, base, ARGV[3], ops, tonumber(ARGV[5]), told or reply)",
        "remember(ctl, base, ARGV[3], ops, tonumber(ARGV[5]), reply)",
        (_ERASED + "test_the_names_of_namespaces_are_not_remembered_with_the_delete",),
    ),
    Mutation(
        "a refused tombstone takes rows",
        "R7",
        "sessioncache/durable/erasing.py",
        "_SESSION.scope_id.in_([row[0] for row in rows]) & _SESSION.deleted",
        "_SESSION.scope_id.in_([row[0] for row in rows])",
        (_ERASED + "test_an_erasure_that_comes_late_takes_no_rows_of_a_session_that_lives_again",),
    ),
    Mutation(
        "dead rows are flushed",
        "R14",
        "sessioncache/durable/flushing.py",
        "bool(row[bulk.STATE.revision_at] > self.dead(scope_id, space))",
        "True",
        (_ERASED + "test_what_a_stopped_worker_still_holds_of_a_deleted_session_is_left_out",),
    ),
    Mutation(
        "a dropped namespace keeps its session",
        "R15",
        _LUA + "prelude.lua",
        "    call('SREM', base .. 'spaces', member)\n    let_go(base, session, member, ttl)\n",
        "    call('SREM', base .. 'spaces', member)\n",
        (_SPACES + "test_a_session_does_not_stay_pinned_by_a_namespace_of_a_life_that_is_over",),
    ),
    Mutation(
        "a first key is not told",
        "R12",
        _LUA + "write.lua",
        "if more then --",
        "if false then --",
        (_SPACES + "test_a_fork_has_a_namespace_that_got_its_first_key_after_they_were_listed",),
    ),
    Mutation(
        "a living namespace is scrubbed",
        "R5",
        _LUA + "scrub.lua",
        "if h[2] and ARGV[4] ~= '1' and problem ~= 'gone' and problem ~= 'cold' then return {'ok', 0} end\n",
        "",
        ("scripts/test_namespaces.py::test_r14_a_namespace_of_a_living_session_is_never_dropped",),
    ),
    Mutation(
        "a namespace is asked for without its session",
        "R11",
        _DURABILITY,
        "    if place.ref.holder:  # a namespace can be read",
        "    if False:  #",
        (_EVIDENCE + "test_flush_tells_that_redis_forgot_what_was_written_to_a_namespace",),
    ),
    Mutation(
        "a namespace has its session's revision",
        "R2",
        "sessioncache/hydration.py",
        '        fields[b"v"] = encode_revision(stored.head.values_revision)\n',
        "",
        (_EVIDENCE + "test_a_namespace_keeps_its_revision_when_it_is_loaded_again",),
    ),
    Mutation(
        "a letter outlives its mark",
        "R10",
        "sessioncache/hot/lua/merge.lua",
        "  in_chunks('HDEL', base .. 'dead', letters)\n",
        "",
        ("gaps/test_merge.py::test_a_letter_goes_with_the_mark_that_sql_has_settled",),
    ),
    Mutation(
        "a clear is shown by an older one",
        "R11",
        "sessioncache/durability.py",
        "    if not (cleared == whole or (",
        "    if pending.life and not (cleared == whole or (",
        (
            _CLEARS + "test_a_clear_is_not_durable_before_it_is_flushed_though_sql_has_no_key",
            _CLEARS + "test_a_clear_is_not_shown_while_the_head_in_sql_tells_of_an_older_one",
        ),
    ),
    Mutation(
        "rows of an earlier life stay in SQL",
        "R14",
        "sessioncache/durable/flushing.py",
        "            found.append(Cleared(scope, None, life))\n",
        "            pass\n",
        (_CLEARS + "test_what_was_written_of_a_session_before_it_was_deleted_and_created_again_leaves_sql",),
    ),
    Mutation(
        "namespaces of an earlier life stay in SQL",
        "R14",
        "sessioncache/durable/clearing.py",
        "    whole = [one for one in cleared if one.namespace is None]\n",
        "    whole: list[Cleared] = []\n",
        (_CLEARS + "test_what_was_written_of_a_session_before_it_was_deleted_and_created_again_leaves_sql",),
    ),
    Mutation(
        "a clear takes the namespaces along in SQL",
        "R14",
        "sessioncache/durable/clearing.py",
        "(given.namespace IS NULL OR stored.namespace = given.namespace) AND ",
        "",
        (_CLEARS + "test_the_flush_of_a_clear_takes_the_rows_out_of_sql_and_leaves_the_rest",),
    ),
    Mutation(
        "a clear of a namespace waits for what SQL refuses",
        "R14",
        "sessioncache/durable/bulk.py",
        '"{0}.revision", ("cleared", "revision"))',
        '"{0}.revision")',
        (_CLEARS + "test_a_clear_of_a_namespace_reaches_sql_beside_what_it_refuses",),
    ),
    Mutation(
        "a namespace of a life that SQL does not know is compared with it",
        "R14",
        "sessioncache/comparing.py",
        "    if is_ahead:\n        return True\n",
        "",
        (_CLEARS + "test_a_namespace_loaded_in_a_new_life_that_sql_does_not_know_is_not_older_than_it_was",),
    ),
    Mutation(
        "a clear of what is in SQL proves nothing",
        "R11",
        "sessioncache/ledger.py",
        "pending.whole = encode_revision(decode_revision(revision) - 1)",
        "pending.whole = revision",
        (_CLEARS + "test_a_clear_is_shown_by_sql_once_the_session_has_left_redis",),
    ),
    Mutation(
        "a namespace is told of the flush of an earlier life",
        "R18",
        "sessioncache/hot/reconciling.py",
        "return flushed if self.kind is not ScopeKind.NAMESPACE or flushed >= self.birth else 0",
        "return flushed",
        ("unit/test_reconciling.py::test_r18_what_was_flushed_of_an_earlier_life_is_not_missed_in_this_one",),
    ),
    Mutation(
        "a flush of an earlier life is missed",
        "R18",
        "sessioncache/durable/heads.py",
        "dirt.namespace_flushed if dirt.namespace_flushed >= dirt.head.birth else 0",
        "dirt.namespace_flushed",
        ("test_durable_restored.py::test_what_was_flushed_of_an_earlier_life_of_a_namespace_is_not_missed",),
    ),
)
