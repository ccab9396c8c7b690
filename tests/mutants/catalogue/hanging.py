"""Hanging: what is not answered in time is left behind, and no more is said of it than is known."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_DURABLE = "sessioncache/durable/"
_STANDBY = "faults/test_synchronous_standby.py::"

MUTATIONS = (
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
)
