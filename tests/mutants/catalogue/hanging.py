"""Hanging: what is not answered in time is left behind, and no more is said of it than is known."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_DURABLE = "sessioncache/durable/"
_STANDBY, _HALF_OPEN = "faults/test_synchronous_standby.py::", "faults/test_half_open.py::"
_NEXT = _HALF_OPEN + "test_r10_one_call_shows_that_the_connections_are_dead_and_the_next_uses_a_new_one"

MUTATIONS = (
    Mutation(
        "a connection that answers another statement is used again",
        "R10",
        _DURABLE + "transactions.py",
        "            await connection.invalidate()\n            raise DurableTierUnavailableError(\n",
        "            raise DurableTierUnavailableError(\n",
        ("durable/test_engine.py::test_a_connection_that_answers_another_statement_is_used_no_more",),
    ),
    Mutation(
        "an answer without rows to a transaction's first statement passes",
        "R10",
        _DURABLE + "transactions.py",
        "        (await connection.exec_driver_sql(_TIMEOUTS, given)).one()",
        "        await connection.exec_driver_sql(_TIMEOUTS, given)",
        ("durable/test_engine.py::test_a_transaction_that_writes_meets_an_answer_without_rows_at_once",),
    ),
    Mutation(
        "a commit is cancelled at the server",
        "R11",
        _DURABLE + "transactions.py",
        "            await commit(connection)\n",
        "            await connection.commit()\n",
        (_STANDBY + "test_r11_a_commit_that_waits_for_a_standby_is_left_and_not_cancelled[run_out_of_time]",),
    ),
    Mutation(
        "the end of an event loop cancels a commit at the server",
        "R11",
        _DURABLE + "commits.py",
        "        self._given_up = True\n        _cut_off(self._driver)\n        return True\n",
        "        return super().cancel(msg)\n",
        (_STANDBY + "test_r11_a_commit_that_waits_for_a_standby_is_left_and_not_cancelled[cancel_all]",),
    ),
    Mutation(
        "a commit that was given up keeps its connection",
        "R11",
        _DURABLE + "commits.py",
        "            await self._connection.invalidate()  # the answer may have come before\n",
        "",
        ("unit/test_commits.py::test_a_commit_that_was_answered_and_cancelled_at_once_leaves_its_connection",),
    ),
    Mutation(
        "each connection that lost its server takes a call's time to show it",
        "R10",
        _DURABLE + "tier.py",
        "            self.engine.pool._invalidate(None)",
        "            (lambda _: None)(None)",
        (_NEXT + "[read]",),
    ),
    Mutation(
        "the connections of a caller's engine are trusted",
        "R10",
        _DURABLE + "tier.py",
        "        if now >= self._doubted + _TRUSTED:\n",
        "        if self._owned and now >= self._doubted + _TRUSTED:\n",
        (_HALF_OPEN + "test_r10_the_pool_of_a_callers_engine_is_doubted_and_what_it_is_used_for_goes_on",),
    ),
    Mutation(
        "a database that is slow is connected to anew each time",
        "R10",
        _DURABLE + "tier.py",
        "        if now >= self._doubted + _TRUSTED:\n",
        "        if now >= self._doubted:\n",
        (_HALF_OPEN + "test_r10_a_database_that_is_slow_is_not_made_slower_by_connecting_anew_all_the_time",),
    ),
    Mutation(
        "a large reading counts as silence",
        "R10",
        _DURABLE + "hang_detection.py",
        "        self._deaf = self._hears_one\n",
        "",
        (_HALF_OPEN + "test_a_reading_that_was_answered_takes_as_long_as_it_does",),
    ),
    Mutation(
        "a connection that lost its server is waited for as long as its caller likes, or for ever",
        "R10",
        _DURABLE + "hang_detection.py",
        '    event.listen(heard.sync_engine, "before_cursor_execute", _asks)\n',
        "",
        (_NEXT + "[clock]", _NEXT + "[purge]"),
    ),
    Mutation(
        "a value that is refused makes statements small for everybody",
        "R10",
        _DURABLE + "statement_sizes.py",
        "        if seconds >= _LONG / 4:\n",
        "        if True:\n",
        ("durable/test_flush.py::test_a_value_that_is_refused_makes_no_statement_smaller",),
    ),
)
