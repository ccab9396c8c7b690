"""Revisions: numbers that only grow, written as nine base-64 digits in ASCII order (R3).

A revision is about the microseconds since 1970 by the clock of Redis; 54 bits last until the year 2540, and Lua's
doubles are exact until 2255.  Nine digits of equal length compare as byte strings as the numbers do.
Pure: no I/O.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta

ALPHABET = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
DIGITS = 9
ZERO = ALPHABET[0].encode() * DIGITS
LARGEST = 64**DIGITS - 1

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_STANDARD = bytes.maketrans(ALPHABET.encode(), _STANDARD)
_FROM_STANDARD = bytes.maketrans(_STANDARD, ALPHABET.encode())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encode_revision(revision: int) -> bytes:
    """The nine digits of a revision."""
    if not 0 <= revision <= LARGEST:
        raise ValueError(f"a revision is between 0 and {LARGEST}, not {revision}")
    return b2a_base64(revision.to_bytes(DIGITS, "big"), newline=False).translate(_FROM_STANDARD)[-DIGITS:]


def decode_revision(digits: bytes) -> int:
    """The revision that nine digits stand for."""
    if len(digits) != DIGITS:
        raise ValueError(f"a revision has {DIGITS} digits, not {len(digits)}")
    return int.from_bytes(a2b_base64(b"AAA" + digits.translate(_TO_STANDARD)), "big")


def revision_time(revision: int) -> datetime:
    """The instant a revision stands for, as an aware UTC time with microseconds."""
    return _EPOCH + timedelta(microseconds=revision)
