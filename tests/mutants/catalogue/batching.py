"""Batches: order within a scope, failing alone, nothing of a block that failed."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_BATCH = "sessioncache/batch.py"
_TESTS = "client/test_batch.py::test_"

MUTATIONS = (
    Mutation(
        "calls on one scope run side by side",
        "batches",
        _BATCH,
        "        self._noted.setdefault(lane, []).append(pending)\n",
        "        self._noted.setdefault(pending, []).append(pending)\n",
        (_TESTS + "calls_on_one_scope_are_made_in_their_order",),
    ),
    Mutation(
        "one failure ends the batch",
        "batches",
        _BATCH,
        "        except Exception as error:\n            self._error = error\n",
        "        except ZeroDivisionError as error:\n            self._error = error\n",
        (_TESTS + "a_call_that_fails_fails_alone_and_the_first_error_is_raised",),
    ),
    Mutation(
        "errors pass in silence",
        "batches",
        _BATCH,
        "        if self._check:\n",
        "        if False:\n",
        (_TESTS + "a_call_that_fails_fails_alone_and_the_first_error_is_raised",),
    ),
    Mutation(
        "a block that failed is sent",
        "batches",
        _BATCH,
        "        if kind is not None:\n",
        "        if False:\n",
        (_TESTS + "an_error_in_the_block_sends_nothing",),
    ),
    Mutation(
        "a handle of another cache is taken",
        "batches",
        _BATCH,
        " or handle._tiers is not self._cache._tiers:",
        ":",
        (_TESTS + "wrong_use_is_told_at_once",),
    ),
)
