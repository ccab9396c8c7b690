"""What a handle knows: calls that answer in another order than Redis worked on them leave the newest."""

from __future__ import annotations

from sessioncache.handle.local_view import LocalView
from sessioncache.hot.messages import Content, WrittenPart
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.revisions import encode_revision

SESSION, APP = KeyScope.SESSION, KeyScope.APP
INC = b"inc"


def rev(number: int) -> bytes:
    return encode_revision(number)


def version(number: int) -> bytes:
    return INC + rev(number)


def after(number: int) -> WrittenPart:
    """A write of ours to a scope that was at a revision."""
    return WrittenPart(INC, rev(0), changed=True, results=[], before=rev(number), values_before=rev(number))


def content(number: int, **entries: bytes) -> Content:
    """A scope at a revision."""
    return Content(INC, {b"r": rev(number)} | {b"=" + key.encode(): value for key, value in entries.items()})


def test_the_newer_of_two_writes_stays_whichever_answers_last() -> None:
    known = LocalView()
    first, second = known.begin(), known.begin()
    known.write(second, SESSION, "k", rev(2), b"2")
    known.write(first, SESSION, "k", rev(1), b"1")
    assert known.values == {"k": rev(2) + b"2"}


def test_a_key_that_somebody_deleted_since_a_write_is_not_brought_back_by_it() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(1))
    reading = known.begin()
    known.write(known.begin(), SESSION, "k", rev(2), b"2")
    known.advance(SESSION, after(1), rev(2))
    known.replace(reading, SESSION, "", content(3, other=rev(1) + b"1"))
    assert known.values == {"other": rev(1) + b"1"}


def test_a_write_that_answers_after_a_reading_of_something_newer_changes_nothing() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(1))
    writing = known.begin()
    known.replace(known.begin(), SESSION, "", content(5, k=rev(5) + b"5"))
    known.write(writing, SESSION, "k", rev(4), b"4")
    assert known.values == {"k": rev(5) + b"5"}


def test_a_delete_that_answers_first_is_not_undone_by_an_older_write() -> None:
    known = LocalView()
    first, second = known.begin(), known.begin()
    known.write(second, SESSION, "k", rev(2), None)
    known.write(first, SESSION, "k", rev(1), b"1")
    assert known.values == {}


def test_a_reading_from_before_a_write_does_not_take_it_back() -> None:
    known = LocalView()
    reading = known.begin()
    known.write(known.begin(), SESSION, "k", rev(2), b"2")
    known.read(reading, SESSION, "k", rev(1) + b"1", version(1))
    known.read(reading, SESSION, "k", None, version(1))
    known.replace(reading, SESSION, "", content(1, k=rev(1) + b"1", other=rev(1) + b"1"))
    assert known.values == {"k": rev(2) + b"2", "other": rev(1) + b"1"}


def test_a_reading_from_before_a_delete_does_not_bring_the_key_back() -> None:
    known = LocalView()
    known.write(known.begin(), SESSION, "k", rev(1), b"1")
    reading = known.begin()
    known.write(known.begin(), SESSION, "k", rev(2), None)
    known.replace(reading, SESSION, "", content(1, k=rev(1) + b"1"))
    assert known.values == {}


def test_what_others_wrote_after_a_write_of_ours_counts() -> None:
    known = LocalView()
    reading = known.begin()
    known.write(known.begin(), SESSION, "k", rev(2), b"2")
    known.replace(reading, SESSION, "", content(3, k=rev(3) + b"3"))
    assert known.values == {"k": rev(3) + b"3"}


def test_a_later_reading_counts_also_where_redis_forgot_and_is_older() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(9, k=rev(9) + b"9"))
    forgot = Content(b"new", {b"r": rev(1), b"=k": rev(1) + b"1"})
    known.read(known.begin(), SESSION, "k", rev(1) + b"1", forgot.version)
    assert known.values == {"k": rev(1) + b"1"}
    known.replace(known.begin(), SESSION, "", forgot)
    assert known.values == {"k": rev(1) + b"1"}
    known.replace(known.begin(), SESSION, "", Content(b"new", {}))
    assert known.values == {}


def test_a_reading_of_one_scope_leaves_the_others_as_they_are() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(1, k=rev(1) + b"1"))
    known.replace(known.begin(), APP, "app:", content(1, k=rev(1) + b"2"))
    assert known.values == {"k": rev(1) + b"1", "app:k": rev(1) + b"2"}
    known.replace(known.begin(), APP, "app:", content(3, x=rev(3) + b"3"))
    assert known.values == {"k": rev(1) + b"1", "app:x": rev(3) + b"3"}
    assert known.keys_of(APP) == ["app:x"]


def test_writes_after_a_reading_that_nobody_looked_at_are_seen() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(1, gone=rev(1) + b"1", kept=rev(1) + b"1"))
    known.write(known.begin(), SESSION, "gone", rev(2), None)
    known.write(known.begin(), SESSION, "new", rev(3), b"3")
    assert known.values == {"kept": rev(1) + b"1", "new": rev(3) + b"3"}


def test_nothing_is_said_to_be_held_until_it_was_seen_twice_the_same() -> None:
    known = LocalView()
    assert known.versions() == {}
    known.replace(known.begin(), SESSION, "", content(1))
    assert known.versions() == {}, "small, and it may change all the time"
    known.replace(known.begin(), SESSION, "", content(1))
    assert known.versions() == {SESSION: version(1)}
    known.replace(known.begin(), SESSION, "", content(2))
    assert known.versions() == {}
    known.replace(known.begin(), SESSION, "", content(3, large=rev(3) + b"x" * 20_000))
    assert known.versions() == {SESSION: version(3)}, "large: always worth asking"


def steady(number: int) -> LocalView:
    """A handle that holds a scope at a revision."""
    known = LocalView()
    for _ in range(2):
        known.replace(known.begin(), SESSION, "", content(number))
    return known


def test_a_write_of_ours_takes_what_is_held_along_only_from_the_version_held() -> None:
    known = steady(1)
    known.advance(SESSION, after(1), rev(2))
    assert known.versions() == {SESSION: version(2)}
    known.advance(SESSION, after(3), rev(4))
    assert known.versions() == {}, "another process wrote in between"
    known.advance(SESSION, after(4), rev(5))
    assert known.versions() == {}, "what it wrote is still not known"


def test_readings_that_are_older_than_what_is_held_change_nothing() -> None:
    known = steady(5)
    reading = known.begin()
    known.write(known.begin(), SESSION, "k", rev(6), b"6")
    known.advance(SESSION, after(5), rev(6))
    known.read(reading, SESSION, "k", None, version(5))
    known.replace(reading, SESSION, "", content(4))
    assert known.values == {"k": rev(6) + b"6"}
    assert known.versions() == {SESSION: version(6)}


def test_what_is_older_counts_where_the_call_began_after_what_is_held() -> None:
    known = steady(5)
    known.read(known.begin(), SESSION, "k", rev(3) + b"3", version(4))
    assert known.values == {"k": rev(3) + b"3"}, "Redis lost what it had, and SQL knows less"
    known.replace(known.begin(), SESSION, "", content(4, k=rev(2) + b"2"))
    assert known.values == {"k": rev(2) + b"2"}


def test_a_handle_that_goes_its_own_way_takes_what_is_held_along() -> None:
    known = steady(1)
    other = known.copy()
    other.write(other.begin(), SESSION, "k", rev(2), b"2")
    assert (known.values, other.values) == ({}, {"k": rev(2) + b"2"})
    assert other.versions() == {SESSION: version(1)}


def test_the_revision_stands_for_what_is_known_and_moves_on_with_nothing_else() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(1))
    known.advance(SESSION, after(1), rev(2))
    assert known.revision(SESSION) == rev(2)
    known.read(known.begin(), SESSION, "k", rev(3) + b"3", version(3))
    known.advance(SESSION, after(3), rev(4))
    assert known.revision(SESSION) == rev(2), "what else was written at 3 is not known"
    copy = known.copy()
    known.replace(known.begin(), SESSION, "", content(4))
    assert (known.revision(SESSION), copy.revision(SESSION), known.revision(APP)) == (rev(4), rev(2), rev(0))


def test_the_revision_of_a_reading_that_is_outdated_is_not_taken() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(5))
    reading = known.begin()
    known.advance(SESSION, after(5), rev(6))
    known.replace(reading, SESSION, "", content(4))
    assert known.revision(SESSION) == rev(6)


def test_writes_are_remembered_only_for_calls_that_are_under_way() -> None:
    known = LocalView()
    alone = known.begin()
    known.write(alone, KeyScope.SESSION, "k0", encode_revision(1), b"1")
    known.end(alone)
    assert not known._written
    slow = known.begin()
    for number in range(1_000):
        began = known.begin()
        known.write(began, KeyScope.SESSION, f"k{number}", encode_revision(number + 1), b"1")
        known.end(began)
    assert len(known._written) == 1_000, "whoever began before them may bring something older"
    known.read(slow, KeyScope.SESSION, "k7", encode_revision(1) + b"0", b"")
    assert known.values["k7"] == encode_revision(8) + b"1"
    later = known.begin()
    known.end(slow)
    for _ in range(1_000):
        known.end(known.begin())
    assert not known._written, "whoever is under way began after them"
    known.end(later)
    assert len(known.values) == 1_000


def test_what_a_reading_under_way_brings_from_before_a_clear_is_dead() -> None:
    known = LocalView()
    known.replace(known.begin(), SESSION, "", content(1))
    whole, one, writing = known.begin(), known.begin(), known.begin()
    known.clear(known.begin(), SESSION, after(5), rev(6))
    known.advance(SESSION, after(5), rev(6))
    known.read(one, SESSION, "b", rev(5) + b"5", version(5))
    known.write(writing, SESSION, "c", rev(5), b"5")
    assert known.values == {}
    known.replace(whole, SESSION, "", content(5, a=rev(5) + b"5", b=rev(4) + b"4"))
    assert known.values == {}


def test_what_was_written_since_a_clear_lives() -> None:
    known = LocalView()
    reading, later, one = known.begin(), known.begin(), known.begin()
    known.clear(known.begin(), SESSION, after(5), rev(6))
    known.replace(reading, SESSION, "", content(8, a=rev(7) + b"7"))
    known.read(one, SESSION, "b", rev(8) + b"8", version(8))
    assert known.values == {"a": rev(7) + b"7", "b": rev(8) + b"8"}
    known.replace(later, SESSION, "", Content(b"new", {b"r": rev(4), b"=c": rev(4) + b"4"}))
    assert known.values == {"c": rev(4) + b"4"}, "of an incarnation without that clear"


def test_the_later_of_two_clears_counts_whichever_answers_last() -> None:
    known = LocalView()
    reading = known.begin()
    known.clear(known.begin(), SESSION, after(8), rev(9))
    known.clear(known.begin(), SESSION, after(5), rev(6))
    known.replace(reading, SESSION, "", content(8, a=rev(7) + b"7"))
    assert known.copy().values == known.values == {}


def test_a_key_that_was_read_is_not_hidden_by_an_older_write_that_answers_later() -> None:
    known = LocalView()
    writing, deleting, reading = known.begin(), known.begin(), known.begin()
    known.read(reading, SESSION, "k", rev(3) + b"3", version(3))
    known.write(writing, SESSION, "k", rev(2), b"2")
    known.write(deleting, SESSION, "k", rev(1), None)
    assert known.values == {"k": rev(3) + b"3"}


def test_the_newer_of_two_readings_of_a_key_stays_whichever_answers_last() -> None:
    known = LocalView()
    whole, one, other = known.begin(), known.begin(), known.begin()
    known.read(other, SESSION, "k", rev(3) + b"3", version(3))
    known.read(one, SESSION, "k", None, version(2))
    known.replace(whole, SESSION, "", content(2, a=rev(1) + b"1"))
    assert known.values == {"a": rev(1) + b"1", "k": rev(3) + b"3"}
    known.read(one, SESSION, "k", None, version(4))
    assert known.values == {"a": rev(1) + b"1"}


def test_a_copy_waits_for_none_of_the_calls_that_are_under_way() -> None:
    known = LocalView()
    known.begin()
    known.write(known.begin(), SESSION, "k", rev(1), b"1")
    copy = known.copy()
    assert copy.values == known.values
    copy.end(copy.begin())
    assert (copy._written, copy._under_way) == ({}, [])


def test_a_call_among_many_that_end_looks_at_few_writes() -> None:
    looked_at = 0

    class Counting(dict[str, tuple[int, bytes, KeyScope]]):
        def items(self):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a type of CPython's own
            nonlocal looked_at
            looked_at += len(self)
            return super().items()

    known = LocalView()
    calls = [known.begin() for _ in range(4_000)]
    for number, call in enumerate(calls):
        known._written = Counting(known._written)
        known.write(call, SESSION, f"k{number}", rev(number + 1), b"1")
    for call in calls:
        known._written = Counting(known._written)
        known.end(call)
    assert looked_at <= 20 * len(calls)
