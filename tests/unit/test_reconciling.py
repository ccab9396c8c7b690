"""R2, R5: after a revalidation a revision of values stands for what it stood for, or it is another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessioncache.hot.reconciling import HeldEntry, Looked, reconcile
from sessioncache.primitives.entries import Entry, Head, StoredScope
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import ScopeKind


def looked(entries: dict[bytes, HeldEntry], marks: set[bytes], *, own: bool) -> Looked:
    """A session of which the latest value was written at 110."""
    revisions = {"r": 110, "b": 50, "c": 49, "f": 100, "v": 110, "h": 110, "u": 110}
    head = dict.fromkeys("ibycxrfpvhunz") | {name: encode_revision(one) for name, one in revisions.items()}
    return Looked(own, 1_000_000, head, marks, entries)


def stored(*entries: Entry) -> StoredScope:
    """The same session in SQL, where another primary wrote at 120."""
    head = Head("", "app", "u", "s", revision=120, birth=50, cleared=49, values_revision=120, updated=120, flushed=120)
    return StoredScope(head, list(entries), 120)


@pytest.mark.parametrize(
    ("entries", "marks", "own"),
    [
        ({b"=a": HeldEntry(100, 1, False), b"=b": HeldEntry(110, 1, False)}, {b"=b", b"!"}, False),
        ({b"=a": HeldEntry(100, 1, False)}, set(), True),
    ],
    ids=["what SQL lacks is kept", "what it has was missing in this incarnation"],
)
def test_r5_values_that_nobody_saw_at_a_revision_do_not_get_it(
    entries: dict[bytes, HeldEntry], marks: set[bytes], own: bool
) -> None:
    assert reconcile(ScopeKind.SESSION, looked(entries, marks, own=own), stored(Entry("a", 120, b"3"))).replaced


def test_values_that_are_those_of_sql_have_its_revision() -> None:
    hash_ = looked({b"=a": HeldEntry(100, 1, False)}, set(), own=False)
    assert not reconcile(ScopeKind.SESSION, hash_, stored(Entry("a", 120, b"3"))).replaced


def test_r2_a_clear_that_sql_lacks_leaves_what_sql_has_of_a_later_head() -> None:
    hash_ = looked({}, {b"!"}, own=False)
    hash_.head = {**hash_.head, "c": encode_revision(109)}
    in_sql = stored(Entry("old", 100, b"1"), Entry("new", 120, b"3"))
    in_sql = replace(in_sql, head=replace(in_sql.head, title="later", message_count=2, token_total=5))
    made = reconcile(ScopeKind.SESSION, hash_, in_sql)
    assert (made.head[b"t"], made.head[b"m"], made.head[b"k"]) == (b"later", b"2", b"5")
    assert made.head[b"c"] == encode_revision(109)
    assert made.head_is_dirty, "the clear is to be flushed"
    assert made.replaced, "SQL's values at its revision were others"
    assert set(made.sets) == {b"=new"}


@pytest.mark.parametrize(("in_sql", "told"), [(40, 0), (60, 60)], ids=["of an earlier life", "of this one"])
def test_r18_what_was_flushed_of_an_earlier_life_is_not_missed_in_this_one(in_sql: int, told: int) -> None:
    hash_ = looked({}, set(), own=False)
    hash_.head = {**hash_.head, "f": encode_revision(30)}
    head = Head("", "app", "u", "s", revision=60, birth=20, cleared=19, namespace="n", flushed=in_sql)
    assert reconcile(ScopeKind.NAMESPACE, hash_, StoredScope(head, [], 60)).flushed == told
    gone = reconcile(ScopeKind.NAMESPACE, hash_, StoredScope(_without(head), [], 60))
    assert not gone.forgot, "its record went with the flush of this life"


def _without(head: Head) -> Head:
    return replace(head, flushed=0)
