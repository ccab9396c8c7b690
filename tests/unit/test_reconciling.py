"""R2, R5: after a revalidation a revision of values stands for what it stood for, or it is another one."""

from __future__ import annotations

import pytest

from sessioncache.entries import Entry, Head, StoredScope
from sessioncache.hot.reconciling import Held, Looked, reconcile
from sessioncache.revisions import encode_revision
from sessioncache.scopes import ScopeKind


def looked(entries: dict[bytes, Held], marks: set[bytes], *, own: bool) -> Looked:
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
        ({b"=a": Held(100, 1, False), b"=b": Held(110, 1, False)}, {b"=b", b"!"}, False),
        ({b"=a": Held(100, 1, False)}, set(), True),
    ],
    ids=["what SQL lacks is kept", "what it has was missing in this incarnation"],
)
def test_r5_values_that_nobody_saw_at_a_revision_do_not_get_it(
    entries: dict[bytes, Held], marks: set[bytes], own: bool
) -> None:
    assert reconcile(ScopeKind.SESSION, looked(entries, marks, own=own), stored(Entry("a", 120, b"3"))).replaced


def test_values_that_are_those_of_sql_have_its_revision() -> None:
    hash_ = looked({b"=a": Held(100, 1, False)}, set(), own=False)
    assert not reconcile(ScopeKind.SESSION, hash_, stored(Entry("a", 120, b"3"))).replaced
