"""Titles: short, cut where a reader would cut, and whatever the text is."""

from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from sessioncache import InvalidValueError, derive_title

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
WAVE = "👋🏽"
FLAG = "🇩🇪"
ENGLAND = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
ACCENTED = "e\u0301\u0323"
JAMO = "\u1112\u1161\u11ab"
KSHA = "क्षि"
ZALGO = "Z" + "\u0301" * 80

VISIBLE = [FAMILY, WAVE, FLAG, ENGLAND, ACCENTED, JAMO, KSHA, "漢", "a", "é", "."]

graphemes = st.sampled_from([*VISIBLE, " ", "\n", "\u00a0"])
pieces = st.one_of(
    graphemes, st.sampled_from([ZALGO, "\0", "\x1b", "\u200b", "\u202e", "\ud83d", "\ude00", "\u0600", "…", "\u200d"])
)
any_text = st.one_of(
    st.text(st.characters(), max_size=200),  # lone surrogates too
    st.lists(pieces, max_size=150).map("".join),
    st.lists(pieces, min_size=900, max_size=1_100).map("".join),
)


def boundaries(text: str) -> set[int]:
    """Where a text may be cut without cutting what people see as one character."""
    return {0} | {found.end() for found in regex.finditer(r"\X", text)}


@given(any_text)
@example("")
@example(ZALGO)
@example("a" + "\u0301" * 59)
@example("a" + "\u0301" * 59 + " b")
@example("\u200d" * 70 + "a")
def test_a_title_is_short_clean_and_its_own_title(text: str) -> None:
    title = derive_title(text)
    assert len(title) <= 60
    assert title == " ".join(title.split())
    assert not {unicodedata.category(character) for character in title} & {"Cc", "Cs"}
    assert title.encode().decode() == title
    assert derive_title(title) == title


@given(st.lists(graphemes, max_size=300).map("".join))
def test_a_title_is_the_beginning_of_the_text_cut_between_graphemes(text: str) -> None:
    collapsed = " ".join(text.split())
    title = derive_title(text)
    if len(collapsed) <= 60:
        assert title == collapsed
        return
    kept = title.removesuffix("…")
    assert title == kept + "…"
    assert collapsed.startswith(kept)
    assert len(kept) in boundaries(collapsed)
    # A cut inside a word is for a text whose first word fills the title.
    assert collapsed[len(kept)] == " " or " " not in kept


@given(st.lists(st.sampled_from(VISIBLE), min_size=61, max_size=90).map("".join))
def test_a_single_long_word_is_cut_as_late_as_a_grapheme_allows(text: str) -> None:
    kept = derive_title(text).removesuffix("…")
    assert len(kept) == max(end for end in boundaries(text) if end <= 59)


def test_a_short_text_is_its_own_title() -> None:
    assert derive_title("  Book a\tflight\r\n to Oslo ") == "Book a flight to Oslo"


def test_a_long_text_is_cut_at_a_word() -> None:
    text = "I would like to change my flight from Oslo to Bergen next Tuesday morning, please"
    assert derive_title(text) == "I would like to change my flight from Oslo to Bergen next…"
    assert derive_title("x" * 59 + " y") == "x" * 59 + "…"
    assert derive_title("x" * 60) == "x" * 60
    assert derive_title("x" * 61) == "x" * 59 + "…"


PARTS = [
    *("\u0301", "\u20dd", "\u0903", "\u200c", "\u200d", "\ufe0f", "🏽", "\U000e0067"),  # what follows
    *("👩", "⚕", "\u2139", "©", "🇩", "🇪"),  # pictures, and the halves of a flag
    *("\u1112", "\u1161", "\u11ab", "\uac00", "\uac01", "\ua960", "\ud7b0"),  # parts of Hangul
    *("क", "\u094d", "\u093c", "က", "\u1039", "\u1cf5", "\U00011f42", "\u0e33"),  # consonants, and what joins them
    *("\u0600", "\u0d4e", "\U000113d1", "\u200b", "e", "漢"),
]
others = st.characters(
    exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"),
    exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
)


@given(st.integers(50, 59), st.lists(st.one_of(st.sampled_from(PARTS), others), max_size=8).map("".join))
@example(55, "🇩🇪\u200d🇩🇪")
@example(55, "क\u094d\u093c\u200dक")
@example(56, "👩\ufe0f\u200d⚕")
def test_no_sequence_of_unicode_is_cut_where_people_see_one_character(before: int, middle: str) -> None:
    text = "x" * before + middle + "y" * 80
    kept = derive_title(text).removesuffix("…")
    assert text.startswith(kept)
    assert len(kept) in boundaries(text)
    assert before - 1 <= len(kept) <= 59, "what is in doubt costs no more than itself"


@pytest.mark.parametrize("cluster", [FAMILY, WAVE, FLAG, ENGLAND, ACCENTED, JAMO, KSHA])
def test_no_grapheme_is_cut(cluster: str) -> None:
    for before in range(60):
        kept = derive_title("x" * before + cluster * 40).removesuffix("…")
        assert (len(kept) - before) % len(cluster) == 0
        assert len(kept) > 59 - len(cluster)


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\0\x01\x7f\x9f", "\ud800\udfff", "\u200b\u200d\ufeff\ufe0f", "\u3164", "\u202e\u202c", ZALGO]
)
def test_there_is_no_title_where_nothing_can_be_read(text: str) -> None:
    assert derive_title(text) == ""


def test_what_cannot_be_stored_or_shown_is_left_out() -> None:
    assert derive_title("a\0b\x1b[1mc\ud800d\u202ee") == "ab[1mcde"
    assert derive_title(f"one {ZALGO} two") == "one two"
    assert derive_title(ZALGO + "\u0301 two") == "two"


def test_what_a_huge_text_holds_beyond_its_beginning_does_not_count() -> None:
    beginning = "word " * 200
    assert derive_title(beginning + FAMILY * 100_000) == derive_title(beginning + "x") == "word " * 11 + "word…"
    assert derive_title("\0" * 1_000 + "word") == ""


def test_a_grapheme_at_the_end_of_what_is_looked_at_is_not_cut() -> None:
    assert derive_title("hello" + "\0" * 993 + FAMILY) == "hello…"
    assert derive_title("\0" * 999 + FAMILY) == ""


def test_only_a_text_has_a_title() -> None:
    with pytest.raises(InvalidValueError) as caught:
        derive_title(b"bytes")  # type: ignore[arg-type]
    assert (caught.value.path, caught.value.type_name) == ("text", "bytes")
