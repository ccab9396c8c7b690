"""What a handle knows: calls that answer in another order than Redis worked on them leave the newest."""

from __future__ import annotations

from sessioncache.revisions import encode_revision
from sessioncache.state import Known


def rev(number: int) -> bytes:
    return encode_revision(number)


def test_the_newer_of_two_writes_stays_whichever_answers_last() -> None:
    known = Known()
    first, second = known.begin(), known.begin()
    known.write(second, "k", rev(2), b"2")
    known.write(first, "k", rev(1), b"1")
    assert known.values == {"k": rev(2) + b"2"}


def test_a_delete_that_answers_first_is_not_undone_by_an_older_write() -> None:
    known = Known()
    first, second = known.begin(), known.begin()
    known.write(second, "k", rev(2), None)
    known.write(first, "k", rev(1), b"1")
    assert known.values == {}


def test_a_reading_from_before_a_write_does_not_take_it_back() -> None:
    known = Known()
    reading = known.begin()
    known.write(known.begin(), "k", rev(2), b"2")
    known.read(reading, "k", rev(1) + b"1")
    known.read(reading, "k", None)
    known.replace(reading, {"k": rev(1) + b"1", "other": rev(1) + b"1"})
    assert known.values == {"k": rev(2) + b"2", "other": rev(1) + b"1"}


def test_a_reading_from_before_a_delete_does_not_bring_the_key_back() -> None:
    known = Known()
    known.write(known.begin(), "k", rev(1), b"1")
    reading = known.begin()
    known.write(known.begin(), "k", rev(2), None)
    known.replace(reading, {"k": rev(1) + b"1"})
    assert known.values == {}


def test_what_others_wrote_after_a_write_of_ours_counts() -> None:
    known = Known()
    reading = known.begin()
    known.write(known.begin(), "k", rev(2), b"2")
    known.replace(reading, {"k": rev(3) + b"3"})
    assert known.values == {"k": rev(3) + b"3"}


def test_a_later_reading_counts_also_where_redis_forgot_and_is_older() -> None:
    known = Known()
    known.write(known.begin(), "k", rev(9), b"9")
    known.read(known.begin(), "k", rev(1) + b"1")
    assert known.values == {"k": rev(1) + b"1"}
    known.replace(known.begin(), {})
    assert known.values == {}
