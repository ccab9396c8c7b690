"""Batches: order within a scope, failing alone, nothing of a block that failed."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_BATCH = "sessioncache/batch/batch.py"
_CALLS = "sessioncache/batch/calls.py"
_PENDING = "sessioncache/batch/result.py"
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
        _PENDING,
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
    Mutation(
        "a batch keeps the caller's own objects",
        "R19",
        _CALLS,
        "    return decode_value(text) if isinstance(value, (list, dict)) else value\n",
        "    return value\n",
        (_TESTS + "what_is_noted_is_what_was_given_whatever_becomes_of_it",),
    ),
    Mutation(
        "a batch keeps the caller's own mapping",
        "R19",
        _CALLS,
        "        kept[key] = _unmoved(value, text)\n    return kept, size\n",
        "        kept[key] = _unmoved(value, text)\n    return dict(mapping), size\n",
        (_TESTS + "what_is_noted_is_what_was_given_whatever_becomes_of_it",),
    ),
    Mutation(
        "all calls of a batch are under way at once",
        "batches",
        _BATCH,
        "range(min(_AT_ONCE, len(self._noted)))",
        "range(len(self._noted))",
        (_TESTS + "so_many_calls_are_under_way_and_no_more",),
    ),
    Mutation(
        "a cancelled batch leaves its calls running",
        "batches",
        _BATCH,
        "                runners.create_task(_run(lanes))\n",
        "                await asyncio.shield(asyncio.ensure_future(_run(lanes)))\n",
        (_TESTS + "a_cancelled_batch_leaves_no_call_behind",),
    ),
    Mutation(
        "a batch is used twice",
        "batches",
        _BATCH,
        '        self._state = "was used already: begin another one"\n',
        "        self._state = _NEW\n",
        (_TESTS + "wrong_use_is_told_at_once",),
    ),
)
