"""R11: what is unflushed is the same in whatever order the calls of a handle are answered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.handle.unflushed_writes import UnflushedScope, UnflushedWrites
from sessioncache.hot.layout import Layout
from sessioncache.hot.messages import ANY, Operation, Part, Written, WrittenPart
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import session_ref

PLACE = Layout("p", 4).place(session_ref(4, "", "app", "user", "s"))
INCARNATIONS = (b"first", b"second")


class Call(NamedTuple):
    """One call as Redis worked on it."""

    kind: str
    """set, add, delete, clear, touch, create or end (of the session)."""
    key: str
    incarnation: bytes
    revision: int
    flushed: int = 0
    """Up to which revision the scope was flushed at that moment."""


def note(writes: UnflushedWrites, call: Call) -> None:
    """The answer of a call comes."""
    results: dict[str, tuple[bytes, bytes | int]] = {"add": (b"I", b"7"), "delete": (b"D", 1), "clear": (b"C", 3)}
    code, result = results.get(call.kind, (b"S", b""))
    operation = Operation(code, call.key, b"%d" % call.revision, ANY)
    part = Part(PLACE, () if call.kind in ("touch", "end", "create") else [operation])
    done = WrittenPart(call.incarnation, encode_revision(call.flushed), True, [result] * len(part.operations))
    written = Written(encode_revision(call.revision), [done])
    if call.kind == "touch":
        writes.note_head(PLACE, written)
    elif call.kind == "end":
        writes.note_delete(PLACE, written)
    else:
        writes.note([part], written, life=call.kind == "create")


def unflushed_of(calls: Sequence[Call]) -> dict[bytes, UnflushedScope]:
    """What is pending, by incarnation, once all these answers have come in this order."""
    writes = UnflushedWrites()
    for call in calls:
        note(writes, call)
    return {one.incarnation: one for one in writes.pending()}


def holds(found: UnflushedScope, wanted: UnflushedScope) -> bool:
    """Whether nothing is missing of what has to become durable."""
    left = [wanted.life, wanted.head, wanted.whole, *(noted.revision for noted in wanted.entries.values())]
    return (
        found.revision >= max(left)
        and wanted.entries.items() <= found.entries.items()
        and all(getattr(found, name) >= getattr(wanted, name) for name in ("life", "head", "whole"))
        and found.gone == wanted.gone
    )


@st.composite
def histories(draw: st.DrawFn, last: int) -> list[Call]:
    """Up to eight calls of one handle in the order in which Redis worked on them, in one incarnation, then `last`."""
    kinds = st.sampled_from(["set", "set", "add", "delete", "clear", "touch"])
    steps = draw(st.lists(st.tuples(kinds, st.sampled_from("ab"), st.booleans()), min_size=2, max_size=7))
    split = draw(st.integers(0, len(steps)))
    calls = [
        Call(kind, key, INCARNATIONS[last if at >= split else 0], at + 1) for at, (kind, key, _) in enumerate(steps)
    ]
    if draw(st.booleans()):
        calls.insert(0, Call("create", "", calls[0].incarnation, 0))
    if draw(st.booleans()):
        calls.append(Call("end", "", calls[-1].incarnation, len(steps) + 1))
    return [call._replace(revision=call.revision + 10) for call in calls]


@given(histories(last=0).flatmap(lambda calls: st.tuples(st.just(calls), st.permutations(calls))))
def test_r11_the_order_of_answers_does_not_matter(both: tuple[list[Call], list[Call]]) -> None:
    worked, answered = both
    assert unflushed_of(answered) == unflushed_of(worked)


@given(histories(last=1).flatmap(lambda calls: st.tuples(st.just(calls), st.permutations(calls))))
def test_r11_in_whatever_order_answers_of_two_incarnations_come_nothing_is_missing(
    both: tuple[list[Call], list[Call]],
) -> None:
    worked, answered = both
    found = unflushed_of(answered)
    for incarnation, wanted in unflushed_of(worked).items():
        assert holds(found[incarnation], wanted)


@given(st.lists(st.sampled_from(["set", "add", "delete", "clear", "touch"]), min_size=2, max_size=5), st.data())
def test_r11_what_was_flushed_in_between_makes_nothing_later_look_durable(
    kinds: list[str], data: st.DataObject
) -> None:
    through, calls = 0, []
    for at, kind in enumerate(kinds):
        revision = 10 + at
        calls.append(Call(kind, data.draw(st.sampled_from("ab")), INCARNATIONS[0], revision, through))
        if data.draw(st.booleans()):
            through = revision
    latest = calls[-1]
    for order in permutations(calls):
        found = unflushed_of(order)
        assert encode_revision(latest.revision) == found[INCARNATIONS[0]].revision
        if latest.kind in ("set", "add", "delete"):
            assert found[INCARNATIONS[0]].entries[latest.key].revision == encode_revision(latest.revision)


LATE = Call("set", "a", INCARNATIONS[0], 11)
LATER = {
    "another key": Call("set", "b", INCARNATIONS[0], 12, 11),
    "the same key": Call("set", "a", INCARNATIONS[0], 12, 11),
    "a clear": Call("clear", "", INCARNATIONS[0], 12, 11),
    "a touch": Call("touch", "", INCARNATIONS[0], 12, 11),
    "a delete of the session": Call("end", "", INCARNATIONS[0], 12, 11),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
def test_r11_a_late_answer_of_what_is_flushed_hides_no_later_write(later: Call) -> None:
    assert unflushed_of([later, LATE])[INCARNATIONS[0]].revision == encode_revision(later.revision)


def test_r11_a_late_answer_of_an_incarnation_that_is_over_hides_no_write_of_the_next() -> None:
    found = unflushed_of([Call("set", "a", INCARNATIONS[1], 12), LATE])
    assert list(found) == [INCARNATIONS[1]]


def test_r11_a_late_answer_of_an_incarnation_that_is_over_hides_nothing_that_built_on_what_was_there() -> None:
    found = unflushed_of([Call("add", "a", INCARNATIONS[1], 12), LATE])
    assert {one.entries["a"].revision for one in found.values()} == {encode_revision(11), encode_revision(12)}


def test_r11_an_answer_that_comes_while_a_flush_is_judged_is_not_forgotten_with_it() -> None:
    writes = UnflushedWrites()
    note(writes, Call("set", "b", INCARNATIONS[0], 12))
    (judged,) = writes.pending()
    note(writes, LATE)
    writes.forget(judged)
    (left,) = writes.pending()
    assert list(left.entries) == ["a"]
    assert left.whole == b""
