"""Titles of sessions, derived from the first message of the user.  Pure: no I/O."""

from __future__ import annotations

import re
from unicodedata import category, combining

from sessioncache.errors import InvalidValueError

MAX_TITLE_LENGTH = 60
"""Longest derived title, in code points, the ellipsis included."""

_LOOKED_AT = 1_000
"""Code points of a text that are read, so that a huge message costs no more than a long one."""
_ELLIPSIS = "…"
# Marks that open or close a direction of writing: a cut would leave one open, and turn around what follows the title.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U00013439-\U0001343f\U000e0000-\U000e0fff]"
)
"""What is shown as nothing, although its category does not say so."""
_ZWJ = "\u200d"
_VIRAMA = 9
"""The combining class of signs that make one of two consonants, as in the scripts of India."""
_LINKS = "\u1cf5\u1cf6\U000113d0\U00011f42"
"""What does so without being of that class, or is younger than the Unicode of the oldest Python."""
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))
"""Two of them are a flag."""
# Joiners, vowels and finals of Hangul and others, skin tones, the letters of a region's flag.
_FOLLOWING = re.compile(
    "[\u0e33\u0eb3\u1160-\u11ff\u200c\u200d\ud7b0-\ud7fb\uff9e\uff9f"
    "\U00016d63\U00016d67-\U00016d6a\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
"""What belongs to the character before it, although its category does not say so."""
# Signs that stand before digits and letters; the consonant that begins a syllable of Hangul.
_TOGETHER = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3\U000113d1"
    "\U0001193f\U00011941\U00011a84-\U00011a89\U00011d46\U00011f02]."
    "|[\u1100-\u115f\ua960-\ua97c][\u1100-\u115f\ua960-\ua97c\uac00-\ud7a3]"
)
"""Two code points that are one character, or parts of one."""


def derive_title(text: str) -> str:
    """A title of at most 60 code points for a session that begins with `text`; empty where nothing can be read.

    White space becomes single blanks; control characters, lone surrogates and marks of writing direction are left out.
    What is longer is cut at a word where there is one, never inside a character as people see it, and ends in "…".

    Raises:
        InvalidValueError: `text` is not a str.
    """
    if not isinstance(text, str):
        raise InvalidValueError("a text must be a str", path="text", type_name=type(text).__name__)
    stripped = text.strip()
    whole = len(stripped) <= _LOOKED_AT
    graphemes = _graphemes(_cleaned(stripped[:_LOOKED_AT]))
    if not whole:
        graphemes = graphemes[:-1]  # the last one may continue beyond what was read
    title = "".join(graphemes)
    if whole and len(title) <= MAX_TITLE_LENGTH:
        return title if _is_readable(title) else ""
    kept = _cut(graphemes)
    return kept + _ELLIPSIS if _is_readable(kept) else ""


def _cleaned(text: str) -> str:
    kept = (c for c in text if c.isspace() or (category(c) not in ("Cc", "Cs") and c not in _DIRECTIONS))
    return " ".join("".join(kept).split())


def _graphemes(text: str) -> list[str]:
    """The text cut into characters as people see them; those that would fill a title alone are left out."""
    while True:
        graphemes = _split(text)
        # One of exactly the longest length is a title by itself, but with more behind it there must be room for "…".
        most = MAX_TITLE_LENGTH if len(text) <= MAX_TITLE_LENGTH else MAX_TITLE_LENGTH - len(_ELLIPSIS)
        if all(len(grapheme) <= most for grapheme in graphemes):
            return graphemes
        # A blank in its place keeps its neighbours apart; marks that follow may join the blank, so look again.
        text = _cleaned("".join(g if len(g) <= most else " " for g in graphemes))


def _split(text: str) -> list[str]:
    """The characters as people see them (UAX #29); in doubt two are one, so that none is ever cut."""
    if text.isascii():
        return list(text)
    graphemes: list[str] = []
    linked = False
    for c in text:
        if graphemes and (_joins(graphemes[-1], c) or (linked and category(c) == "Lo")):
            graphemes[-1] += c
        else:
            graphemes.append(c)
        linked = combining(c) == _VIRAMA or c in _LINKS or (linked and _is_mark(c))
    return graphemes


def _joins(grapheme: str, c: str) -> bool:
    """Whether a code point continues the character before it."""
    if _is_mark(c) or _TOGETHER.match(grapheme[-1] + c):
        return True
    if grapheme[-1] == _ZWJ:
        return category(c)[0] in "SPC" or c == "\u2139"  # pictures: symbols, and U+2139, a letter
    return c in _FLAG_LETTERS and (len(grapheme) - len(grapheme.rstrip(_FLAG_LETTERS))) % 2 == 1


def _is_mark(c: str) -> bool:
    kind = category(c)
    # What is unassigned here may be a mark of a later Unicode; from U+1F000 there are only pictures and ideographs.
    return kind[0] == "M" or (kind == "Cn" and c < "\U0001f000") or _FOLLOWING.match(c) is not None


def _cut(graphemes: list[str]) -> str:
    """As many whole words as leave room for "…"; of a single long word as much as fits."""
    kept = graphemes[: _most_that_fit(graphemes)]
    inside_a_word = len(kept) == len(graphemes) or graphemes[len(kept)] != " "
    if inside_a_word and " " in kept:
        kept = kept[: len(kept) - 1 - kept[::-1].index(" ")]
    return "".join(kept).rstrip()


def _most_that_fit(graphemes: list[str]) -> int:
    room = MAX_TITLE_LENGTH - len(_ELLIPSIS)
    for number, grapheme in enumerate(graphemes):
        room -= len(grapheme)
        if room < 0:
            return number
    return len(graphemes)


def _is_readable(text: str) -> bool:
    return any(
        category(c)[0] != "Z" and category(c) not in ("Cc", "Cf", "Cs") and not _INVISIBLE.match(c) for c in text
    )
