"""Unflushed sessions: those whose latest head SQL does not have yet, in many buckets at once.

A list is merged from these and from SQL.  They are read first: a session leaves them only once SQL has it, so that none
is missed between the two readings.  Tombstones are among them, since what is deleted is absent at once (R14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.fields import Field, head_of
from sessioncache.hot.layout import Layout
from sessioncache.hot.scripts import load_script
from sessioncache.hot.signals import UnreadyBuckets
from sessioncache.primitives.cursors import Order, Position
from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import ZERO, decode_revision

_MOST = 500
"""Most sessions of one bucket in one reply."""
_BUCKETS = 64
"""Most buckets of one script call."""
NAMES = (
    Field.REVISION,
    Field.BIRTH,
    Field.CLEARED,
    Field.DELETED,
    Field.ORG,
    Field.APP,
    Field.USER,
    Field.SESSION,
    Field.TITLE,
    Field.MESSAGES,
    Field.TOKENS,
    Field.FORKED_FROM,
    Field.VALUES_REVISION,
    Field.UPDATED,
)
"""The head fields that an unflushed session comes with."""

Since = tuple[int, bytes]
"""A bucket, and where to begin in its index."""


@dataclass(frozen=True, slots=True)
class Unflushed:
    """A session, or the tombstone of one, as the hot tier has it.

    Most are never shown, so that each field is decoded only where it is needed.
    """

    scope_id: str
    _fields: list[bytes | None]
    """Its incarnation if that is not the present one, then the values of `NAMES`."""

    @property
    def doubtful(self) -> bool:
        """Whether it is of an older incarnation and not revalidated: what SQL has at or above its revision counts
        (R17)."""
        return bool(self._fields[0])

    @property
    def revision(self) -> int:
        """The scope revision."""
        return decode_revision(self._fields[1] or ZERO)

    @property
    def deleted(self) -> bool:
        """Whether it is a tombstone."""
        return bool(self._fields[4])

    @property
    def head(self) -> Head:
        """Its head."""
        return head_of({name: value for name, value in zip(NAMES, self._fields[1:], strict=True) if value})

    def position(self, order: Order) -> Position:
        """Its position in lists."""
        instant = self._fields[14 if order == "updated" else 2] or ZERO
        return Position(decode_revision(instant), (self._fields[8] or b"").decode(), self.scope_id)


async def read_unflushed(
    link: HotClient, layout: Layout, letter: str, index_id: str, buckets: Sequence[int]
) -> list[Unflushed]:
    """All unflushed sessions of one index (letter and id as in ``prelude.lua``); UnreadyBuckets."""
    found: list[Unflushed] = []
    todo: list[Since] = [(bucket, b"-inf") for bucket in buckets]
    while todo:
        chunks = [todo[at : at + _BUCKETS] for at in range(0, len(todo), _BUCKETS)]
        calls = [_call(layout, letter, index_id, chunk) for chunk in chunks]
        replies = await link.call_many(load_script("unflushed"), calls)
        _check_registered(chunks, replies)
        lists = [listed for reply in replies for listed in reply[1:]]
        for listed in lists:
            found += map(Unflushed, (member[1:].decode() for member in listed[1::2]), listed[2::2])
        # A bucket with more than one reply holds continues at the score where it ended.
        todo = [(bucket, listed[0]) for (bucket, _), listed in zip(todo, lists, strict=True) if listed[0]]
    return found


def _call(layout: Layout, letter: str, index_id: str, chunk: Sequence[Since]) -> tuple[list[bytes], list[Argument]]:
    keys = [layout.control(bucket) for bucket, _ in chunk]
    return keys, [letter, index_id, _MOST, *(since for _, since in chunk)]


def _check_registered(chunks: Sequence[Sequence[Since]], replies: Sequence[Reply]) -> None:
    """Raise one signal for all buckets that have to be registered, so that this is done at once."""
    missing = [
        chunk[number - 1][0]
        for chunk, reply in zip(chunks, replies, strict=True)
        if reply[0] == b"register"
        for number in reply[1:]
    ]
    if missing:
        raise UnreadyBuckets(missing)
