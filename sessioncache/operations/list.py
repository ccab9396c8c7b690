"""Lists of sessions: heads that SQL does not have yet, read first, merged with indexed pages of SQL.

Hot first, so that a session is in one of the two readings whatever is flushed between them: it leaves the index of
unflushed sessions only after SQL has it.  Of the two heads of a session the one with the larger revision counts, also
if it is a tombstone.  SQL's rows are read in the order of the list, so that nothing is missing down to the last row
read, the *frontier*; nothing is shown beyond it.  Rows that an unflushed head supersedes are dropped, and more are read
in their place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from reprlib import repr as short

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import InvalidNameError
from sessioncache.hot.unflushed import Unflushed
from sessioncache.primitives.cursors import Order, Owner, Position, instant_of, read_cursor, write_cursor
from sessioncache.primitives.entries import StoredHead
from sessioncache.primitives.names import check_name
from sessioncache.primitives.scopes import bare_id
from sessioncache.primitives.session_info import SessionInfo, SessionPage, info_of

_PAGE = 500
"""Sessions of one page of an iteration."""
_MOST = 10**9
"""Largest limit of a page."""
_MOST_ROWS = 2_000
"""Most rows of SQL that one query returns, unless a whole list is asked for."""


LocalView = StoredHead | Unflushed
Place = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class Listing:
    """The sessions of one owner in one order."""

    tiers: Tiers
    owner: Owner
    order: Order

    async def page(self, limit: object, cursor: object) -> SessionPage:
        """One page from the cursor's position on; InvalidNameError for a wrong limit or cursor."""
        most = _check_limit(limit)
        after = None if cursor is None else read_cursor(self.owner, self.order, cursor)
        if most == 0:
            return SessionPage([], None if after is None else write_cursor(self.owner, self.order, after))
        heads, is_last = await self._read(most, after)
        last = None if is_last else write_cursor(self.owner, self.order, _position(heads[-1], self.order))
        return SessionPage([info_of(one.head) for one in heads], last)

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """All of them, page by page."""
        cursor: str | None = None
        while True:
            page = await self.page(_PAGE, cursor)
            for info in page.items:
                yield info
            cursor = page.cursor
            if cursor is None:
                return

    async def _read(self, most: int | None, after: Position | None) -> tuple[list[LocalView], bool]:
        """The heads that follow a position, and whether there are no more of them."""
        unflushed = await read_unflushed(self.tiers, self.owner.kind, self.owner.id, self.owner.buckets(self._buckets))
        merging = _Merging(self.order, after, unflushed)
        rows = None if most is None else most + 1
        while True:
            found = await self._read_stored(merging.frontier, rows)
            merging.add(found, is_end=rows is None or len(found) < rows)
            heads = merging.settled()
            if most is None or merging.is_end or len(heads) > most:
                return heads[:most], most is None or len(heads) <= most
            rows = rows and max(rows, min(4 * rows, _MOST_ROWS))

    async def _read_stored(self, after: Position | None, rows: int | None) -> list[StoredHead]:
        durable = self.tiers.durable
        return await self.tiers.perform(lambda: durable.list_sessions(self.owner, self.order, after, rows))

    @property
    def _buckets(self) -> int:
        return self.tiers.settings.buckets


class _Merging:
    """One page while it is being merged."""

    def __init__(self, order: Order, after: Position | None, unflushed: Sequence[Unflushed]) -> None:
        self._order = order
        self._hot = {one.scope_id: one for one in unflushed}
        placed = [(one.position(order).place, one) for one in unflushed if not one.deleted]
        self._found: dict[str, tuple[Place, LocalView]] = {
            one.scope_id: (place, one) for place, one in placed if after is None or place > after.place
        }
        self.frontier = after
        self.is_end = False

    def add(self, rows: Sequence[StoredHead], *, is_end: bool) -> None:
        """Add the rows that follow the frontier."""
        for row in rows:
            hot = self._hot.get(row.scope_id)
            if hot is None or hot.revision < row.head.revision:
                self._found[row.scope_id] = _position(row, self._order).place, row
        self.is_end = is_end
        if rows:
            self.frontier = _position(rows[-1], self._order)

    def settled(self) -> list[LocalView]:
        """What is complete, down to the frontier, in the order of the list."""
        known = list(self._found.values())
        if not self.is_end:
            end = self.frontier.place if self.frontier else None
            known = [one for one in known if end is not None and one[0] <= end]
        return [one for _, one in sorted(known, key=lambda one: one[0])]


async def find(tiers: Tiers, org: str, app: str | None, session_id: str) -> list[SessionInfo]:
    """The living sessions of one org (one app, if given) that have an id, by app and user."""
    check_name("a session id", session_id)
    shared = bare_id(org, session_id)
    unflushed = await read_unflushed(tiers, "bare", shared, range(tiers.settings.buckets))
    latest = {one.scope_id: one.head for one in unflushed}
    for row in await tiers.perform(lambda: tiers.durable.find_sessions(shared, app)):
        hot = latest.get(row.scope_id)
        if hot is None or hot.revision < row.head.revision:
            latest[row.scope_id] = row.head
    living = [head for head in latest.values() if not head.deleted and app in (None, head.app)]
    return [info_of(head) for head in sorted(living, key=lambda head: (head.app, head.user))]


_INDEXES = {"user": "u", "app": "a", "org_user": "w", "org": "o", "bare": "b"}


async def read_unflushed(tiers: Tiers, kind: str, index_id: str, buckets: Sequence[int]) -> list[Unflushed]:
    """The sessions whose latest head SQL does not have yet, tombstones included."""
    found = await tiers.perform(lambda: tiers.hot.unflushed(_INDEXES[kind], index_id, buckets))
    doubtful = [one.scope_id for one in found if one.doubtful]
    if not doubtful:
        return found
    known = await tiers.perform(lambda: tiers.durable.session_revisions(doubtful))
    return [one for one in found if not one.doubtful or known.get(one.scope_id, 0) < one.revision]


def _position(one: LocalView, order: Order) -> Position:
    if isinstance(one, Unflushed):
        return one.position(order)
    return Position(instant_of(one.head, order), one.head.session, one.scope_id)


def _check_limit(limit: object) -> int | None:
    if limit is not None and (type(limit) is not int or not 0 <= limit <= _MOST):
        raise InvalidNameError(f"limit must be a whole number from 0 to {_MOST}, or None, not {short(limit)}")
    return limit
