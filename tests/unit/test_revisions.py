"""R3: nine digits that compare as byte strings as the numbers do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessioncache.primitives.revisions import ALPHABET, LARGEST, ZERO, decode_revision, encode_revision, revision_time

REVISIONS = st.integers(0, LARGEST)


@pytest.mark.parametrize(
    ("revision", "digits"),
    [
        (0, ZERO),
        (1, b"--------0"),
        (63, b"--------z"),
        (64, b"-------0-"),
        (1_790_000_000_000_000, b"5LzvP8T--"),
        (LARGEST, b"zzzzzzzzz"),
    ],
)
def test_a_revision_is_written_as_existing_installations_have_it(revision: int, digits: bytes) -> None:
    assert encode_revision(revision) == digits


@given(REVISIONS)
def test_a_revision_comes_back_from_its_digits(revision: int) -> None:
    assert decode_revision(encode_revision(revision)) == revision


@given(REVISIONS, REVISIONS)
def test_digits_are_ordered_as_the_numbers_are(one: int, other: int) -> None:
    assert (encode_revision(one) < encode_revision(other)) == (one < other)


@given(st.integers(0, LARGEST - 1))
def test_the_next_revision_is_the_next_greater_text(revision: int) -> None:
    assert encode_revision(revision) < encode_revision(revision + 1)


@given(st.text(ALPHABET, min_size=9, max_size=9))
def test_every_nine_digits_are_a_revision(digits: str) -> None:
    assert encode_revision(decode_revision(digits.encode())) == digits.encode()


def test_the_digits_are_in_ascii_order() -> None:
    assert list(ALPHABET) == sorted(ALPHABET)
    assert len(set(ALPHABET)) == 64


@pytest.mark.parametrize("revision", [-1, LARGEST + 1])
def test_what_nine_digits_cannot_hold_is_refused(revision: int) -> None:
    with pytest.raises(ValueError, match="a revision is between 0 and"):
        encode_revision(revision)


@pytest.mark.parametrize("digits", [b"", b"--------", b"----------"])
def test_other_than_nine_digits_are_no_revision(digits: bytes) -> None:
    with pytest.raises(ValueError, match="a revision has 9 digits"):
        decode_revision(digits)


def test_a_revision_stands_for_an_instant_in_utc_to_the_microsecond() -> None:
    assert revision_time(1_790_000_000_000_007) == datetime(2026, 9, 21, 14, 13, 20, 7, tzinfo=UTC)
