"""Signals: what a script could not do, and what the caller has to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sessioncache.hot.layout import Place
from sessioncache.primitives.signal import Signal


class Need(StrEnum):
    """What has to be made ready."""

    REGISTER = "register"
    """Register the bucket's incarnation in SQL."""
    REVALIDATE = "revalidate"
    """Revalidate the hash, which is of an older incarnation."""
    COLD = "cold"
    """Load the scope, which is not hot."""
    UNFLUSHED = "unflushed"
    """Flush the session first: SQL has to know of it."""


class Unready(Signal):
    """A script did nothing, since something has to be made ready first."""

    def __init__(self, need: Need, places: list[Place]) -> None:
        super().__init__(need)
        self.need = need
        self.places = places


class UnreadyBuckets(Signal):
    """The incarnations of these buckets have to be registered first."""

    def __init__(self, buckets: list[int]) -> None:
        super().__init__(buckets)
        self.buckets = buckets


class Gone(Signal):
    """The session was deleted or lives another life."""


class Dropped(Signal):
    """A dirty namespace was dropped, since its session's life is over."""


class Taken(Signal):
    """A living session has the id."""


class TokenLost(Signal):
    """The token under which SQL was read is no longer held: read again."""


class PiecesLost(Signal):
    """What was gathered in pieces is incomplete, or outdated: gather it again."""


class Erased(Signal):
    """The user is being erased, or was erased just now: writes are refused."""


def raise_unready(reply: Any, places: Sequence[Place]) -> None:
    """Raise what the reply of a script reports as not ready; `places` are those that it numbers.  Unready, Gone."""
    status = reply[0]
    if status == b"gone":
        raise Gone
    if status in (b"register", b"revalidate", b"cold"):
        raise Unready(Need(status.decode()), [places[i - 1] for i in reply[1:]])
