"""The worker's pure parts: when to look at which bucket, and what goes into one transaction."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from sessioncache_worker.batch import batches, halves
from sessioncache_worker.schedule import Schedule

from sessioncache.primitives.entries import Dirt, Entry, Head
from sessioncache.primitives.scopes import ScopeKind


def test_an_empty_agenda_waits_until_something_is_announced() -> None:
    assert Schedule().due(0, 10) == []
    assert Schedule().seconds_to_next(0) is None


def test_an_announced_bucket_is_due_at_once() -> None:
    agenda = Schedule()
    agenda.announce(3, 100)
    assert (agenda.due(100, 10), agenda.seconds_to_next(100)) == ([3], 0)


def test_a_bucket_is_due_when_its_next_scope_is() -> None:
    agenda = Schedule()
    agenda.note(3, 5, 100)
    assert (agenda.due(104, 10), agenda.seconds_to_next(104)) == ([], 1)
    assert agenda.due(105, 10) == [3]


def test_an_empty_bucket_leaves_the_agenda() -> None:
    agenda = Schedule()
    agenda.announce(3, 100)
    agenda.note(3, None, 100)
    assert agenda.seconds_to_next(100) is None


def test_an_announcement_brings_a_bucket_forward() -> None:
    agenda = Schedule()
    agenda.note(3, 50, 100)
    agenda.announce(3, 101)
    assert agenda.due(101, 10) == [3]


def test_an_announcement_does_not_put_a_bucket_off() -> None:
    agenda = Schedule()
    agenda.announce(3, 100)
    agenda.announce(3, 105)
    assert agenda.due(100, 10) == [3]


def test_what_was_announced_during_a_look_that_found_nothing_stays() -> None:
    agenda = Schedule()
    agenda.announce(3, 101)
    agenda.note(3, None, 100)
    assert agenda.due(101, 10) == [3]


def test_what_was_announced_during_a_look_comes_before_what_the_look_found() -> None:
    agenda = Schedule()
    agenda.announce(3, 101)
    agenda.note(3, 50, 100)
    assert agenda.due(101, 10) == [3]


def test_those_longest_due_come_first_and_no_more_than_asked_for() -> None:
    agenda = Schedule()
    for bucket, wait in ((1, 3), (2, 1), (3, 2), (4, 9)):
        agenda.note(bucket, wait, 0)
    assert agenda.due(5, 2) == [2, 3]


def test_what_is_overdue_means_no_wait() -> None:
    agenda = Schedule()
    agenda.note(1, 1, 0)
    assert agenda.seconds_to_next(10) == 0


def dirt(number: int, sizes: list[int]) -> Dirt:
    """The dirt of one scope, by the sizes of its values."""
    entries = [Entry(str(key), 1, b"x" * size) for key, size in enumerate(sizes)]
    return Dirt(ScopeKind.SESSION, str(number), 0, "i", Head("", "", "", "", 1), b"", entries)


SCOPES = st.lists(st.lists(st.integers(0, 50), max_size=6), max_size=20)
LIMITS = {"rows": 8, "size": 100}


def weight(batch: list[Dirt]) -> tuple[int, int]:
    """Rows and bytes of a batch."""
    return sum(1 + len(one.entries) for one in batch), sum(len(e.text) for one in batch for e in one.entries)


@given(SCOPES)
def test_every_scope_is_in_exactly_one_batch_whole_and_in_order(scopes: list[list[int]]) -> None:
    given_dirt = [dirt(number, sizes) for number, sizes in enumerate(scopes)]
    cut = list(batches(iter(given_dirt), **LIMITS))
    assert [one for batch in cut for one in batch] == given_dirt
    assert all(cut)


@given(SCOPES)
def test_only_a_single_scope_is_larger_than_a_batch(scopes: list[list[int]]) -> None:
    for batch in batches([dirt(number, sizes) for number, sizes in enumerate(scopes)], **LIMITS):
        rows, size = weight(batch)
        assert len(batch) == 1 or (rows <= LIMITS["rows"] and size <= LIMITS["size"])


@given(SCOPES)
def test_no_batch_could_have_taken_the_next_scope_too(scopes: list[list[int]]) -> None:
    cut = list(batches([dirt(number, sizes) for number, sizes in enumerate(scopes)], **LIMITS))
    for batch, following in itertools.pairwise(cut):
        rows, size = weight([*batch, following[0]])
        assert rows > LIMITS["rows"] or size > LIMITS["size"]


@given(st.lists(st.just([]), min_size=2, max_size=20))
def test_halves_are_both_smaller_and_lose_nothing(scopes: list[list[int]]) -> None:
    batch = [dirt(number, sizes) for number, sizes in enumerate(scopes)]
    first, second = halves(batch)
    assert first + second == batch
    assert first
    assert second
    assert abs(len(first) - len(second)) <= 1
