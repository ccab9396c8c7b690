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
        "bool(row[bulk.STATE.revision_at] > dead)",
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
        "if more then call('HSET', parts[1].hash, 'l', revision) end",
        "",
        (_SPACES + "test_a_fork_has_a_namespace_that_got_its_first_key_after_they_were_listed",),
    ),
    Mutation(
        "a living namespace is scrubbed",
        "R5",
        _LUA + "scrub.lua",
        "if h[2] and problem ~= 'gone' and problem ~= 'cold' then return {'ok', 0} end\n",
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
        "a clear is shown while it is dirty",
        "R11",
        "sessioncache/durability.py",
        "is not None and clean and (evidence.oldest",
        "is not None and (evidence.oldest",
        (_CLEARS + "test_a_clear_is_not_durable_before_it_is_flushed_though_sql_has_no_key",),
    ),
    Mutation(
        "a clear is shown though keys live on",
        "R11",
        "sessioncache/durability.py",
        "clean and (evidence.oldest is None or evidence.oldest > whole)",
        "clean",
        (_CLEARS + "test_a_clear_is_not_shown_while_sql_has_an_older_key",),
    ),
)
