"""R11: the record of unflushed writes keeps what a handle wrote until there is evidence that it is durable."""

from __future__ import annotations

import pytest

from sessioncache.handle.unflushed_writes import Noted, UnflushedScope, UnflushedWrites, fingerprint
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.messages import FlushState, Operation, Part, Written, WrittenPart
from sessioncache.primitives.revisions import ZERO, encode_revision
from sessioncache.primitives.scopes import app_ref, session_ref

LAYOUT = Layout("p", 4)
SESSION = LAYOUT.place(session_ref(4, "", "app", "user", "s"))
APP = LAYOUT.place(app_ref(4, "", "app"))
INC, NEW_INC = b"first", b"second"


def rev(number: int) -> bytes:
    """The digits of a small revision."""
    return encode_revision(number)


def put(key: str, text: bytes) -> Operation:
    """Set a key."""
    return Operation(b"S", key, text)


def note(
    writes: UnflushedWrites,
    revision: int,
    *operations: Operation,
    place: Place = SESSION,
    inc: bytes = INC,
    flushed: bytes = ZERO,
    results: list[bytes | int] | None = None,
    life: bool = False,
    temp: bool = False,
    changed: bool = True,
    if_revision: bytes = b"",
) -> None:
    """Note a write of one part."""
    done = WrittenPart(inc, flushed, changed, results if results is not None else [b""] * len(operations))
    writes.note(
        [Part(place, list(operations), if_revision=if_revision, temp=temp)], Written(rev(revision), [done]), life=life
    )


def only(writes: UnflushedWrites) -> UnflushedScope:
    """What is unflushed of the one scope."""
    (pending,) = writes.pending()
    return pending


def state(through: int, inc: bytes = INC, hash_inc: bytes = INC, marks: int = 0) -> FlushState:
    """What Redis tells of a scope."""
    return FlushState(inc, hash_inc, rev(through), marks)


def test_without_writes_nothing_is_unflushed() -> None:
    assert not UnflushedWrites()
    assert UnflushedWrites().pending() == []


def test_a_record_that_was_left_out_is_not_remembered() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    note(writes, 2, Operation(b"R", "a", b"@---------2"), put("b", b"2"), results=[0, b""])
    assert only(writes).entries == {"a": Noted(rev(1), b"1"), "b": Noted(rev(2), b"2")}
    note(writes, 3, Operation(b"R", "a", b"@--------12"), results=[1])
    assert only(writes).entries["a"] == Noted(rev(3), b"@--------12")


def test_a_record_sets_its_key_anew() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    note(writes, 2, Operation(b"R", "a", b"@---------2"), inc=NEW_INC, results=[1])
    assert only(writes).incarnation == NEW_INC


def test_the_latest_write_of_each_key_is_remembered() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), put("b", b"1"))
    note(writes, 2, put("a", b"2"))
    assert only(writes).revision == rev(2)
    assert only(writes).entries == {"a": Noted(rev(2), b"2"), "b": Noted(rev(1), b"1")}


def test_temp_keys_are_not_remembered() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("t", b"1"), temp=True)
    assert not writes


def test_a_part_that_changed_nothing_is_not_remembered() -> None:
    writes = UnflushedWrites()
    note(writes, 1, Operation(b"D", "a"), results=[0], changed=False)
    assert not writes


def test_a_deletion_is_remembered_as_an_empty_text() -> None:
    writes = UnflushedWrites()
    note(writes, 1, Operation(b"D", "a"), Operation(b"D", "b"), results=[1, 0])
    assert only(writes).entries == {"a": Noted(rev(1), b"")}


def test_an_increment_is_remembered_with_its_result() -> None:
    writes = UnflushedWrites()
    note(writes, 1, Operation(b"I", "n", b"1"), Operation(b"A", "l", b"2"), results=[b"42", b"[1,2]"])
    assert only(writes).entries == {"n": Noted(rev(1), b"42", exact=True), "l": Noted(rev(1), b"[1,2]", exact=True)}


def test_what_is_compared_first_is_remembered_as_built_on_what_was_there() -> None:
    writes = UnflushedWrites()
    note(
        writes,
        1,
        put("a", b"1"),
        Operation(b"S", "b", b"1", rev(1)),
        Operation(b"D", "c", b"", rev(1)),
        results=[1] * 3,
    )
    assert {key for key, noted in only(writes).entries.items() if noted.exact} == {"b", "c"}
    note(writes, 2, put("a", b"2"), put("b", b"2"), if_revision=rev(1))
    assert {key for key, noted in only(writes).entries.items() if noted.exact} == {"a", "b", "c"}
    note(writes, 3, put("a", b"3"))
    assert {key for key, noted in only(writes).entries.items() if noted.exact} == {"b", "c"}


def test_a_long_text_is_remembered_by_a_digest() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1" * 1_000))
    assert only(writes).entries == {"a": Noted(rev(1), fingerprint(b"1" * 1_000))}
    assert len(fingerprint(b"1" * 1_000)) < 64
    assert fingerprint(b"1" * 1_000) != fingerprint(b"1" * 999 + b"2")


def test_scopes_and_incarnations_are_remembered_apart() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    note(writes, 2, put("a", b"2"), place=APP)
    note(writes, 3, put("b", b"3"), inc=NEW_INC)
    found = {(pending.place, pending.incarnation, pending.revision) for pending in writes.pending()}
    assert found == {(SESSION, INC, rev(1)), (APP, INC, rev(2)), (SESSION, NEW_INC, rev(3))}
    assert len(writes.pending()) == 3


def test_a_key_that_is_set_anew_matters_in_its_new_incarnation_only() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), put("b", b"1"))
    note(writes, 2, put("a", b"2"), inc=NEW_INC)
    assert [(one.incarnation, set(one.entries)) for one in writes.pending()] == [(INC, {"b"}), (NEW_INC, {"a"})]
    note(writes, 3, put("b", b"3"), inc=NEW_INC)
    assert [(one.incarnation, set(one.entries)) for one in writes.pending()] == [(NEW_INC, {"a", "b"})]


@pytest.mark.parametrize(
    "operation", [Operation(b"I", "a", b"1"), Operation(b"S", "a", b"2", rev(1)), Operation(b"D", "a", b"", rev(1))]
)
def test_what_builds_on_what_was_there_leaves_what_another_incarnation_had_to_be_shown(operation: Operation) -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    note(writes, 2, operation, inc=NEW_INC, results=[1])
    assert [one.incarnation for one in writes.pending()] == [INC, NEW_INC]


def test_what_was_written_before_a_clear_in_another_incarnation_does_not_matter() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), Operation(b"I", "n", b"1"))
    note(writes, 2, Operation(b"C", ""), inc=NEW_INC, results=[2])
    assert [(one.incarnation, one.whole) for one in writes.pending()] == [(NEW_INC, rev(1))]
    note(writes, 3, Operation(b"C", ""), inc=INC, results=[1])
    assert [(one.incarnation, one.whole) for one in writes.pending()] == [(INC, rev(2))], "the later clear"


def test_a_clear_leaves_what_else_another_incarnation_had_and_one_of_nothing_leaves_all() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), life=True)
    note(writes, 2, Operation(b"C", ""), inc=NEW_INC, results=[0])
    assert set(writes.pending()[0].entries) == {"a"}
    note(writes, 3, Operation(b"C", ""), inc=NEW_INC, results=[1])
    assert [(one.entries, one.life) for one in writes.pending()] == [({}, rev(1)), ({}, b"")]


def test_what_a_reply_shows_as_flushed_is_forgotten() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), life=True)
    note(writes, 2, put("b", b"2"), flushed=rev(1))
    assert (only(writes).entries, only(writes).life) == ({"b": Noted(rev(2), b"2")}, b"")


def test_what_a_reply_does_not_show_as_flushed_is_kept() -> None:
    writes = UnflushedWrites()
    note(writes, 2, put("a", b"1"), life=True)
    note(writes, 3, put("b", b"2"), flushed=rev(1))
    assert (set(only(writes).entries), only(writes).life) == ({"a", "b"}, rev(2))


def test_a_create_is_remembered_as_the_life_of_its_session() -> None:
    writes = UnflushedWrites()
    note(writes, 1, life=True)
    assert only(writes).life == rev(1)


def test_a_delete_takes_the_keys_with_it() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), life=True)
    writes.note_delete(SESSION, Written(rev(2), [WrittenPart(INC, ZERO, True, [])]))
    assert (only(writes).entries, only(writes).life, only(writes).revision) == ({}, rev(2), rev(2))


def test_a_scope_flushed_through_the_writes_is_settled() -> None:
    pending = UnflushedScope(SESSION, INC, rev(5))
    assert pending.settled(state(5))
    assert pending.settled(state(6, marks=3))


def test_a_scope_flushed_less_far_is_not_settled_even_without_marks() -> None:
    assert not UnflushedScope(SESSION, INC, rev(5)).settled(state(4, marks=0))


def test_evidence_of_another_incarnation_settles_nothing() -> None:
    pending = UnflushedScope(SESSION, INC, rev(5))
    assert not pending.settled(state(9, inc=NEW_INC))
    assert not pending.settled(state(9, hash_inc=NEW_INC))
    assert not pending.settled(state(9, inc=NEW_INC, hash_inc=NEW_INC))
    assert not pending.settled(state(9, hash_inc=b""))


def test_what_is_pending_is_a_picture_that_later_writes_do_not_move() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    before = only(writes)
    note(writes, 2, put("b", b"2"))
    assert (before.revision, set(before.entries)) == (rev(1), {"a"})


def test_what_is_settled_is_forgotten() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    writes.forget(only(writes))
    assert not writes


def test_what_was_written_since_is_kept() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"), put("b", b"1"), life=True)
    settled = only(writes)
    note(writes, 2, put("a", b"2"))
    writes.forget(settled)
    assert (only(writes).entries, only(writes).life) == ({"a": Noted(rev(2), b"2")}, b"")


def test_forgetting_twice_is_forgetting_once() -> None:
    writes = UnflushedWrites()
    note(writes, 1, put("a", b"1"))
    settled = only(writes)
    writes.forget(settled)
    writes.forget(settled)
    assert not writes


def test_what_was_written_is_unsettled_as_long_as_it_holds_something() -> None:
    unsettled: set[UnflushedWrites] = set()
    writes = UnflushedWrites(unsettled)
    assert unsettled == set()
    note(writes, 1, put("a", b"1"))
    assert unsettled == {writes}
    settled = only(writes)
    note(writes, 2, put("a", b"2"))
    writes.forget(settled)
    assert unsettled == {writes}
    writes.forget(only(writes))
    assert unsettled == set()
