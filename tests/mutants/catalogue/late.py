"""Guards against answers that come in another order than Redis worked on the calls."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_LEDGER = "sessioncache/handle/unflushed_writes.py"
_STATE = "sessioncache/handle/local_view.py"
_SESSION = "sessioncache/session.py"
_LATE = "unit/test_late_answers.py::test_r11_"
_ANSWERS = "client/test_late_answers.py::test_"
_KNOWN = "unit/test_local_view.py::test_"
_ANY_ORDER = _LATE + "the_order_of_answers_does_not_matter"

MUTATIONS = (
    Mutation(
        "the answer that comes last says what has to be flushed",
        "R11",
        _LEDGER,
        "            if is_latest or revision > pending.revision:\n",
        "            if True:\n",
        (_LATE + "a_late_answer_of_what_is_flushed_hides_no_later_write[another key]",),
    ),
    Mutation(
        "the write that is answered last is the one that counts",
        "R11",
        _LEDGER,
        "if is_latest or _overtakes(same, pending, key, noted):",
        "if True:",
        (_ANY_ORDER,),
    ),
    Mutation(
        "a later write of another incarnation is overtaken",
        "R11",
        _LEDGER,
        " and known.revision < revision and not noted.exact:",
        " and not noted.exact:",
        (_LATE + "a_late_answer_of_an_incarnation_that_is_over_hides_nothing_that_built_on_what_was_there",),
    ),
    Mutation(
        "a late answer brings back what was cleared to what is unflushed",
        "R11",
        _LEDGER,
        "        return revision <= self.whole or (self.gone",
        "        return (self.gone",
        (_ANY_ORDER,),
    ),
    Mutation(
        "a late answer brings back what was deleted to what is unflushed",
        "R11",
        _LEDGER,
        "        return revision <= self.whole or (self.gone and revision <= self.life)\n",
        "        return revision <= self.whole\n",
        (_ANY_ORDER,),
    ),
    Mutation(
        "a late clear takes later writes along",
        "R11",
        _LEDGER,
        "    pending.forget(revision, ())\n",
        '    pending.forget(b"~", ())\n',
        (_ANY_ORDER,),
    ),
    Mutation(
        "a late clear is the one that counts",
        "R11",
        _LEDGER,
        "    pending.whole = max(pending.whole, whole)\n",
        "    pending.whole = whole\n",
        (_ANY_ORDER,),
    ),
    Mutation(
        "a late touch is the one that counts",
        "R11",
        _LEDGER,
        "            pending.head = max(pending.head, written.revision)\n",
        "            pending.head = written.revision\n",
        (_ANY_ORDER,),
    ),
    Mutation(
        "what is answered while a flush is judged is forgotten with it",
        "R11",
        _LEDGER,
        "if k not in known or e.revision > known[k].revision}",
        "if e.revision > settled.revision}",
        (_LATE + "an_answer_that_comes_while_a_flush_is_judged_is_not_forgotten_with_it",),
    ),
    Mutation(
        "a late touch brings back an older title",
        "R5",
        _SESSION,
        "        if head.get(Field.UPDATED, ZERO) >= self._head.get(Field.UPDATED, ZERO):",
        "        if True:",
        (_ANSWERS + "r5_a_late_answer_hides_no_newer_title",),
    ),
    Mutation(
        "a late write hides what was read meanwhile",
        "R5",
        _STATE,
        "            if len(self._under_way) > 1:\n",
        "            if False:\n",
        (
            _KNOWN + "a_key_that_was_read_is_not_hidden_by_an_older_write_that_answers_later",
            _ANSWERS + "r5_a_late_answer_hides_nothing_that_was_read_meanwhile",
        ),
    ),
    Mutation(
        "the reading that answers last counts",
        "R5",
        _STATE,
        "        if not self._is_overtaken(began, key, revision):\n            self._put",
        "        if True:\n            self._put",
        (_KNOWN + "the_newer_of_two_readings_of_a_key_stays_whichever_answers_last",),
    ),
    Mutation(
        "what a clear or a delete did not find stays in the state",
        "R5",
        "sessioncache/handle/base.py",
        "                self._note_absent(scope, part.operations, done, began)\n",
        "",
        (_ANSWERS + "what_a_clear_or_a_delete_did_not_find_is_not_in_the_state",),
    ),
    Mutation(
        "a copy waits for calls of the original",
        "R4",
        _STATE,
        "        other._merged, other._cleared = None, self._cleared.copy()\n",
        "        other._merged, other._cleared, other._under_way = None, self._cleared.copy(), self._under_way\n",
        (_KNOWN + "a_copy_waits_for_none_of_the_calls_that_are_under_way",),
    ),
    Mutation(
        "every call that ends looks at all writes",
        "memory and time",
        _STATE,
        "        if _MANY_WRITTEN < len(self._written) < 2 * self._ended:",
        "        if _MANY_WRITTEN < len(self._written):",
        (_KNOWN + "a_call_among_many_that_end_looks_at_few_writes",),
    ),
)
