"""Erasing a user: all that there is goes from both tiers, while others go on writing.

First the user's scope is stamped, so that no session can be created beside the erasure, and writes are refused for a
while.  Then the sessions go, some at a time: they are deleted hot; SQL erases them in transactions under the fence, and
keeps tombstones without a readable identity; Redis drops what it still has.  At last the same is done to the user's
scope.  A session whose names were erased is not found again, so that an erasure that was interrupted continues where it
stopped.

Nothing is found by a scan, only by an index.  A session is hot only if SQL has its head, or the index of unflushed
sessions has it; a namespace, if it is among the namespaces of its bucket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.messages import FencedOff, Owned, Tombstone
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Deleted, Stamp
from sessioncache.hot.signals import Gone, Need, TokenLost, Unready
from sessioncache.operations.delete import Deletion
from sessioncache.primitives.deadline import within
from sessioncache.primitives.revisions import LARGEST, decode_revision
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, namespace_ref, session_ref

T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE = 60.0
"""Seconds after the erasure for which writes of the user are refused: no call that was sent before takes longer."""
_ROUNDS = 5
_PIECE = 256
"""Sessions that one transaction erases."""
_AT_ONCE = 64
"""Scopes that are deleted or dropped at the same time."""
_ROWS = 5_000
"""Rows that one transaction removes."""
_LOOKED_AT = 500
"""Namespaces of one exchange in the search for those of the user."""
_RESTAMP = 16
"""Parts of the sessions after which the scope is stamped anew, which extends the time for which writes are refused."""
_TIMEOUT = 30.0
"""Seconds a transaction may take."""


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure found and erased."""

    sessions: int
    """Sessions that the erasure deleted."""
    entries: int
    """Keys with their values, of the sessions, their namespaces and the user's scope; `temp:` keys are not counted."""


class Erasure:
    """One erasure of one user."""

    def __init__(self, tiers: Tiers, user: Place) -> None:
        self._tiers = tiers
        self._user = user
        self._sessions = self._entries = 0
        self._left: list[ScopeRef] = []
        """Sessions that Redis could not drop yet."""

    async def run(self) -> ErasureReport:
        """Erase until nothing is left; may be repeated at any time, and then continues with what is left."""
        for _ in range(_ROUNDS):
            try:
                if await self._round():
                    await self._tiers.durable.tidy()
                    return ErasureReport(self._sessions, self._entries)
            except FencedOff as fenced:
                await self._tiers.fencing.register(fenced.buckets)
        raise DurableTierUnavailableError("Redis or its place in SQL kept changing during the erasure: call it again")

    async def _round(self) -> bool:
        """Make one pass; whether nothing is left."""
        stamp = await self._stamp()
        self._entries += stamp.living
        pieces = 0
        async for piece in self._pieces():
            pieces += 1
            if pieces % _RESTAMP == 0:
                stamp = await self._stamp()
                logger.info("erasing a user: %d sessions so far", self._sessions)
            await self._erase(piece, stamp)
        stamp = await self._stamp()  # the time for which writes are refused begins anew
        await self._tell(stamp, [])
        own = await self._scrub([(self._user, decode_revision(stamp.revision))])
        others = [found async for found in self._erased()] + [(place, LARGEST) async for place in self._hot_spaces()]
        return not own and not await self._scrub(others) and not self._left

    async def _stamp(self) -> Stamp:
        return await self._tiers.perform(self._try_stamp)

    async def _try_stamp(self) -> Stamp:
        """Stamp the scope, also where it is not hot, without loading it, and when Redis has no memory left."""
        while True:
            try:
                return await self._tiers.hot.erase(self._user, GRACE)
            except Unready as why:
                if why.need is not Need.COLD:
                    raise
            found = await self._tiers.hydrator.find(self._user)
            if found is not None:
                with suppress(TokenLost):
                    return await self._tiers.hot.erase(self._user, GRACE, found.token, found.stored)

    async def _pieces(self) -> AsyncIterator[list[ScopeRef]]:
        """The sessions of the user, whichever tier has them, including those that are deleted already."""
        # Redis is read first: what leaves it meanwhile has reached SQL before.
        user, durable = self._user.ref, self._tiers.durable
        found = await self._tiers.perform(lambda: self._tiers.hot.unflushed("u", user.id, [user.bucket]))
        hot = {one.id: one for one in self._left} | {one.scope_id: self._session(one.head.session) for one in found}
        self._left = []
        for at in range(0, len(hot), _PIECE):
            yield list(hot.values())[at : at + _PIECE]
        before: list[ScopeRef] = []
        while True:
            named = await self._tiers.perform(lambda: durable.named(user, _PIECE))
            if not named or named == before:  # those that could not be erased are left for the next round
                self._left += named
                return
            yield named
            before = named

    def _session(self, name: str) -> ScopeRef:
        user = self._user.ref
        return session_ref(self._tiers.settings.buckets, user.org, user.app, user.user, name)

    async def _erase(self, sessions: list[ScopeRef], stamp: Stamp) -> None:
        """Erase some sessions from both tiers."""
        durable = self._tiers.durable
        owned = await self._tiers.perform(lambda: durable.owned(sessions))
        tombstones = [one for one in await _all(map(self._delete, owned)) if one is not None]
        while await self._tiers.perform(lambda: durable.erase_rows(sessions, _ROWS)) == _ROWS:
            pass  # a session may have more rows than one transaction should remove
        await self._tell(stamp, tombstones)
        known = {one.session.id: one.revision for one in tombstones}
        kept = await self._scrub((self._tiers.layout.place(one), known.get(one.id, 0)) for one in sessions)
        self._left += kept
        spaces = (namespace_ref(one.session, name) for one in owned for name in one.entries if name)
        await self._scrub((self._tiers.layout.place(space), LARGEST) for space in spaces)

    async def _tell(self, stamp: Stamp, tombstones: Sequence[Tombstone]) -> None:
        """Have SQL erase these sessions, and what the sessions of the user share."""
        with within(_TIMEOUT):
            ref, revision = self._user.ref, decode_revision(stamp.revision)
            await self._tiers.durable.erase(ref, revision, tombstones, stamp.incarnation.decode())

    async def _delete(self, owned: Owned) -> Tombstone | None:
        place = self._tiers.layout.place(owned.session)
        try:
            deleted = await self._tiers.perform(Deletion(self._tiers, place).attempt)
        except Gone:  # at 0 it changes nothing in SQL but the names
            return Tombstone(owned.session, 0)
        if deleted.existed:
            self._count(owned, deleted)
        return Tombstone(owned.session, decode_revision(deleted.written.revision)) if deleted.written else None

    def _count(self, owned: Owned, deleted: Deleted) -> None:
        """Count what was deleted, by the hot tier where the session was hot, since SQL may lack some of it."""
        spaces = {**{n: c for n, c in owned.entries.items() if n}, **deleted.namespaces}
        plain = owned.entries.get("", 0) if deleted.living is None else deleted.living
        self._sessions += 1
        self._entries += plain + sum(spaces.values())

    async def _scrub(self, scopes: Iterable[tuple[Place, int]]) -> list[ScopeRef]:
        """Drop what Redis still has of scopes that are dead up to a revision; those that had to be kept.

        A namespace is reached only through its session, which is gone.
        """

        async def scrub(place: Place, revision: int) -> ScopeRef | None:
            gone = await self._tiers.perform(lambda: self._tiers.backlog.scrub(place, revision))
            return None if gone else place.ref

        return [one for one in await _all(scrub(*scope) for scope in scopes) if one is not None]

    async def _erased(self) -> AsyncIterator[tuple[Place, int]]:
        """Hot and clean sessions that were erased before: Redis may have come back from an older file."""
        after, user = "", self._user.ref
        while True:
            read = partial(self._tiers.durable.erased, user, after, _LOOKED_AT)
            dead = dict(await self._tiers.perform(read))
            for place in await self._of_user([ScopeKind.SESSION.value + scope_id for scope_id in dead]):
                yield place, dead[place.ref.id]
            if len(dead) < _LOOKED_AT:
                return
            after = max(dead)

    async def _hot_spaces(self) -> AsyncIterator[Place]:
        """All namespaces of the user that are hot, found by their heads."""
        cursor = b"0"
        while True:
            with within(self._tiers.settings.timeout):
                cursor, members = await self._tiers.keyspace.namespaces(self._user.ref.bucket, cursor)
            for place in await self._of_user(members):
                yield place
            if cursor == b"0":
                return

    async def _of_user(self, members: Sequence[str]) -> list[Place]:
        """Those of some scopes of a bucket that are the user's."""
        user, layout = self._user.ref, self._tiers.layout
        with within(self._tiers.settings.timeout):
            found = await self._tiers.keyspace.names([(user.bucket, member) for member in members])
        places = []
        for member, names in zip(members, found, strict=True):
            if names and names.is_there and names[:3] == (user.org, user.app, user.user):
                ref = ScopeRef(ScopeKind(member[0]), user.org, user.app, user.user, names.session)
                places.append(layout.place(replace(ref, id=member[1:], bucket=user.bucket)))
        return places


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of calls, so many at a time."""
    waiting, results = list(calls), []
    for at in range(0, len(waiting), _AT_ONCE):
        results += await asyncio.gather(*waiting[at : at + _AT_ONCE])
    return results
