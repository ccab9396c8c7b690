"""Caller timestamps: the time that a caller gave with a value, stored in front of its JSON text.

The text of an entry is JSON, or ``@``, nine digits of microseconds since 1970 (as in revisions), and JSON; no JSON text
begins with ``@``.  Without a caller timestamp an entry is as old as its revision.  Pure: no I/O.
"""

from __future__ import annotations

from sessioncache.primitives.revisions import DIGITS, decode_revision, encode_revision

_MARK = b"@"
DATE_MARK = _MARK[0]
"""The byte that the text of an entry begins with if it has a caller timestamp."""
_LENGTH = len(_MARK) + DIGITS


def dated(json: bytes, at: int | None) -> bytes:
    """The text of an entry whose caller gave the time `at` in microseconds; JSON alone where it is None."""
    return json if at is None else _MARK + encode_revision(at) + json


def date_of(text: bytes, start: int = 0) -> int | None:
    """The time in microseconds that was given with the text that begins at `start`; None: none was."""
    if text[start : start + 1] != _MARK:
        return None
    return decode_revision(text[start + len(_MARK) : start + _LENGTH])


def json_of(text: bytes, start: int = 0) -> bytes:
    """The JSON of the text that begins at `start` (a value as Redis holds it has its revision before the text)."""
    return text[start + _LENGTH :] if text[start : start + 1] == _MARK else text[start:]


def json_size(text: bytes) -> int:
    """How many bytes of a text are JSON: what limits count."""
    return len(text) - _LENGTH if text[:1] == _MARK else len(text)
