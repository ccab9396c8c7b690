"""Outages: nothing but refused data is set apart, one scope holds nobody up, workers outlive and tell what fails."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LUA, _DURABLE, _WORKER = "sessioncache/hot/lua/", "sessioncache/durable/", "workers/sessioncache_worker/"
_OUTAGES, _ISOLATION, _LETTERS = "rules/test_outages.py::", "unit/test_isolation.py::", "scripts/test_letters.py::"

MUTATIONS = (
    Mutation(
        "a missing right makes letters",
        "R10",
        _DURABLE + "errors.py",
        "partial=True, cause=RIGHTS)",
        "partial=True, refused=True, cause=RIGHTS)",
        (_OUTAGES + "test_r10_a_right_that_is_taken_away_for_a_while_makes_no_letter",),
    ),
    Mutation(
        "what fails for one scope fails for its batch",
        "R10",
        _WORKER + "flusher.py",
        "                if not error._partial:\n",
        "                if True:\n",
        (_OUTAGES + "test_r10_a_head_that_a_trigger_fails_at_holds_nobody_up",),
    ),
    Mutation(
        "parts that fail are not cut further",
        "R10",
        _WORKER + "isolation.py",
        "                else:\n                    todo.extend(_parts(part))\n",
        "                else:\n                    sick += [(one, str(error)) for one in part]\n",
        (_ISOLATION + "test_r10_parts_that_fail_are_cut_until_the_scope_to_blame_is_alone",),
    ),
    Mutation(
        "an outage of the whole is looked for scope by scope",
        "R10",
        _WORKER + "isolation.py",
        "(not answered and len(sick) + 1 == _SAMPLE and todo)",
        "False",
        (_ISOLATION + "test_r10_where_nothing_can_be_committed_the_outage_is_no_scopes",),
    ),
    Mutation(
        "a scope that keeps failing is tried as often as ever",
        "R10",
        _WORKER + "isolation.py",
        "min(_LONGEST, 2.0**one.attempts)",
        "2.0",
        (_ISOLATION + "test_r10_a_scope_that_keeps_failing_is_put_off_for_ever_longer_and_not_for_ever",),
    ),
    Mutation(
        "ailing scopes are taken for an outage of the whole",
        "R10",
        _WORKER + "isolation.py",
        "        answered = known\n",
        "        answered = False\n",
        (_ISOLATION + "test_r10_ailing_scopes_are_no_sign_of_an_outage_of_the_whole",),
    ),
    Mutation(
        "a helper that fails stays away",
        "R9",
        _WORKER + "helpers.py",
        "            self._note(name, job)\n",
        "            self._note(name, job)\n            return\n",
        (_OUTAGES + "test_r10_a_helper_that_fails_is_told_once_started_again_and_seen",),
    ),
    Mutation(
        "a database that is set read-only is written to",
        "R10",
        _DURABLE + "transactions.py",
        'await connection.execution_options(isolation_level="READ COMMITTED")',
        'await connection.execution_options(isolation_level="READ COMMITTED", postgresql_readonly=False)',
        ("test_durable_engine.py::test_r10_a_database_that_is_set_read_only_is_left_alone",),
    ),
    Mutation(
        "a reading leaves its connection set to write",
        "R10",
        _DURABLE + "transactions.py",
        'await connection.execution_options(isolation_level="REPEATABLE READ")',
        'await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)',
        ("test_durable_engine.py::test_r10_a_database_that_is_set_read_only_is_left_alone",),
    ),
    Mutation(
        "scripts are told once more at most",
        "R4",
        "sessioncache/hot/link.py",
        "for each in (False, True):",
        "for each in (False,):",
        ("client/test_lines.py::test_r4_scripts_that_are_forgotten_between_two_calls_of_one_exchange_are_told_again",),
    ),
    Mutation(
        "a scope without a head is still claimed",
        "R10",
        _LUA + "prelude.lua",
        "  if not is_headless(base, member, call('HGET', hash, 'd')) then\n",
        "  if true then\n",
        (_LETTERS + "test_a_scope_whose_head_is_refused_rests_as_a_whole_until_it_is_written_anew",),
    ),
    Mutation(
        "a letter on a head holds for newer heads",
        "R10",
        _LUA + "prelude.lua",
        " and string.sub(letter, 1, 9) == head_version(base, host)",
        "",
        (_LETTERS + "test_a_scope_whose_head_is_refused_rests_as_a_whole_until_it_is_written_anew",),
    ),
    Mutation(
        "namespaces do not rest with the head of their session",
        "R10",
        _LUA + "accuse.lua",
        "if dead == 1 and is_head then\n",
        "if false then\n",
        (_LETTERS + "test_with_the_head_of_a_session_its_namespaces_rest_and_wake",),
    ),
    Mutation(
        "namespaces sleep on when the head of their session was flushed",
        "R10",
        _LUA + "ack.lua",
        "if has_head and call('HDEL', base .. 'dead', member .. '!') == 1 then",
        "if false then",
        (_LETTERS + "test_what_wakes_the_head_of_a_session_wakes_its_namespaces_once_it_is_flushed",),
    ),
    Mutation(
        "flush tells nothing of a head that is refused",
        "R11",
        "sessioncache/durability.py",
        "    if state.headless and not pending.settled(state):\n",
        "    if False:\n",
        ("rules/test_letters.py::test_r10_a_head_that_is_refused_is_told_retried_dropped_and_holds_nobody_up",),
    ),
)
