"""Watching: R5, R17, and that nothing is missed without being told so."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA = "sessioncache/hot/lua/"
_WATCH = "sessioncache/watching.py"
_LISTEN = "sessioncache/hot/listening.py"
_CLIENT = "client/test_watching.py::"
_SUITE = "conformance/test_valkey_sqlite.py::TestWatching::"

MUTATIONS = (
    Mutation(
        "writes are not announced",
        "watch",
        _LUA + "writing.lua",
        "  announce(p.base .. 'w:' .. p.member, 'w', revision, p.v or ZERO, p.marks)\n",
        "",
        (_SUITE + "test_a_change_names_scope_keys_and_revision",),
    ),
    Mutation(
        "writes of temp keys are not announced",
        "watch",
        _LUA + "writing.lua",
        "  announce(p.base .. 'w:' .. session.member, 't', revision, ZERO, p.marks)\n",
        "",
        (_SUITE + "test_one_write_of_several_scopes_is_one_change_of_each_with_keys_as_the_session_writes_them",),
    ),
    Mutation(
        "the end of a session is not announced",
        "R5",
        _LUA + "delete.lua",
        "announce(base .. 'w:' .. member, 'x', revision, h[2], {})\n",
        "",
        (_SUITE + "test_watching_ends_with_the_session",),
    ),
    Mutation(
        "an erasure is not announced",
        "watch",
        _LUA + "erase.lua",
        "announce(base .. 'w:' .. member, '?', revision, h[2], {})\n",
        "",
        (_CLIENT + "test_an_erased_user_is_told_as_missed",),
    ),
    Mutation(
        "what revalidation changes is not announced",
        "R17",
        _LUA + "merge.lua",
        "announce(base .. 'w:' .. member, '?', rev_digits(top), h[2], {})\n",
        "",
        (_CLIENT + "test_r17_what_revalidation_takes_from_sql_is_marked_as_missed",),
    ),
    Mutation(
        "a new incarnation is not announced",
        "R17",
        _LUA + "incarnation.lua",
        "  announce(string.sub(KEYS[1], 1, -4) .. 'w', '?', ZERO, ZERO, {})\n",
        "",
        (_CLIENT + "test_r17_what_redis_forgot_is_marked_as_missed",),
    ),
    Mutation(
        "a refused announcement fails the write",
        "R1",
        _LUA + "prelude.lua",
        "  redis.pcall('SPUBLISH'",
        "  redis.call('SPUBLISH'",
        (_CLIENT + "test_whoever_may_not_announce_writes_all_the_same",),
    ),
    Mutation(
        "all keys of a write are named, however many",
        "watch",
        _LUA + "prelude.lua",
        "local told = #fields <= MOST_TOLD and table.concat(fields, '\\0') or '*'",
        "local told = table.concat(fields, '\\0')",
        (_CLIENT + "test_more_keys_than_are_named_are_told_as_missed",),
    ),
    Mutation(
        "gaps between revisions are not noticed",
        "watch",
        _WATCH,
        "gap = chained and last is not None and told.before != last",
        "gap = False",
        (_CLIENT + "test_whoever_may_not_announce_writes_all_the_same",),
    ),
    Mutation(
        "after an interruption nothing is looked up",
        "watch",
        _LISTEN,
        "            sink.interrupted()\n",
        "            pass\n",
        (_CLIENT + "test_what_was_written_while_the_connection_was_cut_is_marked_as_missed",),
    ),
    Mutation(
        "a slow reader is not told what was dropped",
        "watch",
        _WATCH,
        "replace(change, keys=(), missed=True) for change in latest.values()",
        "latest.values()",
        (_SUITE + "test_a_slow_reader_is_told_that_it_missed_something",),
    ),
    Mutation(
        "changes of the next life are told",
        "R5",
        _WATCH,
        "while len(self._pending) > self._sure:",
        "while False:",
        (_SUITE + "test_watching_ends_with_the_session",),
    ),
    Mutation(
        "a connection that says nothing is trusted",
        "watch",
        _LISTEN,
        "            if message is None:\n                raise OSError",
        "            if False:\n                raise OSError",
        (_CLIENT + "test_a_server_that_says_nothing_any_more_is_left",),
    ),
)
