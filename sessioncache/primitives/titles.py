"""Titles of sessions, derived from the first message of the user.  Pure: no I/O."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unicodedata import category

from sessioncache.errors import InvalidValueError

MAX_TITLE_LENGTH = 60
"""Longest derived title, in code points, the ellipsis included."""

_LOOKED_AT = 1_000
"""Code points of a text that are read, so that a huge message costs no more than a long one."""
_ELLIPSIS = "…"
# Marks that open or close a direction of writing: a cut would leave one open, and turn around what follows the title.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


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
        graphemes: list[str] = _expressions().grapheme.findall(text)
        # One of exactly the longest length is a title by itself, but with more behind it there must be room for "…".
        most = MAX_TITLE_LENGTH if len(text) <= MAX_TITLE_LENGTH else MAX_TITLE_LENGTH - len(_ELLIPSIS)
        if all(len(grapheme) <= most for grapheme in graphemes):
            return graphemes
        # A blank in its place keeps its neighbours apart; marks that follow may join the blank, so look again.
        text = _cleaned("".join(g if len(g) <= most else " " for g in graphemes))


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
    return _expressions().readable.search(text) is not None


class _Expressions:
    # Imported here, since most programs never derive a title.
    def __init__(self) -> None:
        import regex

        self.grapheme: Any = regex.compile(r"\X")
        self.readable: Any = regex.compile(r"[^\p{Z}\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}]")


@lru_cache(maxsize=1)
def _expressions() -> _Expressions:
    return _Expressions()
