"""Cursors: whose sessions a list shows, in which order, and a position in it.  Pure: no I/O.

A list is newest first; sessions of one instant are ordered by id, those of one id by scope id, so that every session of
every list has a position of its own.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from sessioncache.errors import InvalidNameError
from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import LARGEST
from sessioncache.primitives.scopes import app_id, bucket_of, hash_id, org_id, org_user_id, user_id

Order = Literal["updated", "created"]
ORDERS: tuple[Order, ...] = get_args(Order)
Owned = Literal["user", "app", "org_user", "org"]

_PARTS = (0, 6, 14, 30)
"""Where in a cursor the mark of its list, the instant, the scope id and the session id begin, in bytes."""


class Position(NamedTuple):
    """The position of a session in a list."""

    instant: int
    """The revision that the list is ordered by."""
    session: str
    scope_id: str

    @property
    def place(self) -> tuple[int, str, str]:
        """A key that sorts as the list does."""
        return -self.instant, self.session, self.scope_id


def instant_of(head: Head, order: Order) -> int:
    """The revision that a list in this order is ordered by."""
    return head.updated if order == "updated" else head.birth


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose sessions a list shows."""

    org: str
    app: str | None
    """None: of every app of the org."""
    user: str | None
    """None: of every user."""

    @property
    def kind(self) -> Owned:
        """What the sessions have in common."""
        if self.app is None:
            return "org" if self.user is None else "org_user"
        return "app" if self.user is None else "user"

    @property
    def id(self) -> str:
        """The id of what they have in common."""
        if self.app is None:
            return org_id(self.org) if self.user is None else org_user_id(self.org, self.user)
        return app_id(self.org, self.app) if self.user is None else user_id(self.org, self.app, self.user)

    def buckets(self, number: int) -> list[int]:
        """The buckets that the sessions are in."""
        if self.app is None or self.user is None:
            return list(range(number))
        return [bucket_of(number, self.org, self.app, self.user)]


def check_order(order: object) -> Order:
    """Return `order`, or raise InvalidNameError."""
    if type(order) is not str or order not in ORDERS:
        raise InvalidNameError(f"order must be 'updated' or 'created', not {order!r}")
    return order


def write_cursor(owner: Owner, order: Order, position: Position) -> str:
    """A position as opaque text that is safe in URLs, for this list only."""
    data = _list_mark(owner, order) + position.instant.to_bytes(_PARTS[2] - _PARTS[1], "big")
    data += bytes.fromhex(position.scope_id) + position.session.encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def read_cursor(owner: Owner, order: Order, cursor: object) -> Position:
    """The position that `write_cursor` wrote; InvalidNameError for anything else."""
    if type(cursor) is not str:
        raise InvalidNameError(f"cursor must be a str or None, not {type(cursor).__name__}")
    try:
        mark, position = _take_apart(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        raise InvalidNameError("cursor is not one that a list returned") from None
    if mark != _list_mark(owner, order):
        raise InvalidNameError("cursor is of another list: of another user, app, org or order, or of none")
    if write_cursor(owner, order, position) != cursor:
        raise InvalidNameError("cursor is not one that a list returned")
    return position


def _take_apart(data: bytes) -> tuple[bytes, Position]:
    """The mark of the list, and the position; ValueError where no session can have that position."""
    mark, instant, scope_id, session = (data[a:b] for a, b in pairwise((*_PARTS, None)))
    position = Position(int.from_bytes(instant, "big"), session.decode(), scope_id.hex())
    if not session or b"\0" in session or position.instant > LARGEST:
        raise ValueError
    return mark, position


def _list_mark(owner: Owner, order: Order) -> bytes:
    return bytes.fromhex(hash_id("list", order, owner.kind, owner.id))[: _PARTS[1]]
