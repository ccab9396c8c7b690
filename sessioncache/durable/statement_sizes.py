"""Statement sizes: how many rows one statement gets, so that it ends well before its time-out.

The transaction is not split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

R = TypeVar("R")

_MOST, _LEAST = 1_000, 10
_LONG = 1.0
"""Seconds that a statement may take before the next ones get fewer rows."""


class StatementSizes:
    """The most rows of one statement to one database: fewer while statements take long, or longer than they may."""

    def __init__(self) -> None:
        self.rows = _MOST

    def cut(self, rows: Sequence[R]) -> Iterator[Sequence[R]]:
        """Rows in pieces, each as large as it may be at that moment."""
        at = 0
        while at < len(rows):
            piece = rows[at : at + self.rows]
            yield piece
            at += len(piece)

    def took(self, rows: int, seconds: float) -> None:
        """A statement of so many rows took so many seconds."""
        if seconds > _LONG:
            self.rows = max(_LEAST, int(rows * _LONG / seconds))
        elif seconds < _LONG / 4 and rows >= self.rows:
            self.rows = min(_MOST, 2 * self.rows)

    def failed(self, seconds: float) -> None:
        """A statement failed after so many seconds, maybe because it took too long: one that is refused at once did
        not."""
        if seconds >= _LONG / 4:
            self.rows = max(_LEAST, self.rows // 4)


_known: WeakKeyDictionary[Engine, StatementSizes] = WeakKeyDictionary()


def pieces_of(connection: AsyncConnection) -> StatementSizes:
    """The sizes for a connection's database."""
    return _known.setdefault(connection.sync_engine, StatementSizes())
