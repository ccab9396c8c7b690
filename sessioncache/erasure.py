"""Erasing a user: all that there is goes from both tiers, while others go on writing.

First the user's scope is stamped, so that no session can be created beside the erasure and nothing new is let in for
a while; then every session is deleted hot; then SQL is told, in one transaction under the fence, and keeps tombstones
without a readable identity; at last Redis drops what it still has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from sessioncache.deadline import within
from sessioncache.deletion import Deletion
from sessioncache.durable.answers import FencedOff, Owned, Tombstone
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.calls import Deleted, Gone, Need, Stamp, TokenLost, Unready
from sessioncache.hot.layout import Place
from sessioncache.restoring import hot_scopes
from sessioncache.revisions import LARGEST, decode_revision
from sessioncache.scopes import ScopeKind, ScopeRef
from sessioncache.tiers import Tiers

GRACE = 60.0
"""Seconds after the erasure for which nothing new of the user is let in: no call that is on its way takes longer."""
_ROUNDS = 5
_AT_ONCE = 64
"""Sessions that are deleted at once."""
_LOOKED_AT = 500
"""Scopes of one exchange in the search for those of the user."""
_RESTAMP = 64 * _AT_ONCE
"""Sessions after which the time for which nothing is let in begins anew."""
_TIMEOUT = 30.0
"""Seconds the transaction may take."""
_IDENTITY = (b"o", b"a", b"w", b"s", b"r")


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

    async def run(self) -> ErasureReport:
        """Erase until nothing is left; may be repeated at any time."""
        for _ in range(_ROUNDS):
            if await self._round():
                return ErasureReport(self._sessions, self._entries)
        raise DurableTierUnavailableError("Redis or its place in SQL kept changing during the erasure: call it again")

    async def _round(self) -> bool:
        """Whether nothing is left."""
        stamp = await self._stamp()
        self._entries += stamp.living
        tombstones = [one async for one in self._delete_all()]
        stamp = await self._stamp()  # the time for which nothing is let in begins anew
        try:
            with within(_TIMEOUT):
                ref, revision = self._user.ref, decode_revision(stamp.revision)
                await self._tiers.durable.erase(ref, revision, tombstones, stamp.incarnation.decode())
        except FencedOff as fenced:
            await self._tiers.registrar.register(fenced.buckets)
            return False
        known = {one.session.id: one.revision for one in tombstones}
        known[ref.id] = revision
        return await self._scrub(known)

    async def _stamp(self) -> Stamp:
        return await self._tiers.perform(self._try_stamp)

    async def _try_stamp(self) -> Stamp:
        """Also where the scope is not hot, without loading it, and when Redis has no memory left."""
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

    async def _delete_all(self) -> AsyncIterator[Tombstone]:
        """Delete every session of the user, whichever tier has it; tombstones that were there already come, too."""
        # Redis is looked at first: what leaves it meanwhile has come to SQL before.
        hot = [place.ref async for place in self._hot_scopes() if place.ref.kind is ScopeKind.SESSION]
        stored = await self._tiers.perform(lambda: self._tiers.durable.owned(self._user.ref))
        todo = {one.session.id: one for one in stored}
        for ref in hot:
            todo.setdefault(ref.id, Owned(ref, {}))
        owned = list(todo.values())
        for at in range(0, len(owned), _AT_ONCE):
            if at % _RESTAMP == 0:
                await self._stamp()
            for tombstone in await asyncio.gather(*map(self._delete, owned[at : at + _AT_ONCE])):
                if tombstone is not None:
                    yield tombstone

    async def _delete(self, owned: Owned) -> Tombstone | None:
        place = self._tiers.layout.place(owned.session)
        try:
            deleted = await self._tiers.perform(Deletion(self._tiers, place).attempt)
        except Gone:
            return None
        if deleted.existed:
            self._count(owned, deleted)
        return Tombstone(owned.session, decode_revision(deleted.written.revision)) if deleted.written else None

    def _count(self, owned: Owned, deleted: Deleted) -> None:
        """What was hot is counted there, since SQL may lack some of it."""
        spaces = {**{n: c for n, c in owned.entries.items() if n}, **deleted.namespaces}
        plain = owned.entries.get("", 0) if deleted.living is None else deleted.living
        self._sessions += 1
        self._entries += plain + sum(spaces.values())

    async def _scrub(self, known: dict[str, int]) -> bool:
        """Drop what Redis still has of the user; whether all of it could be dropped."""
        clean = True
        async for place in self._hot_scopes():
            ref = place.ref
            # A namespace is reached only through its session, and that one is gone.
            revision = LARGEST if ref.kind is ScopeKind.NAMESPACE else known.get(ref.id, 0)
            clean &= await self._tiers.perform(partial(self._tiers.backlog.scrub, place, revision))
        return clean

    async def _hot_scopes(self) -> AsyncIterator[Place]:
        """All scopes of the user that are hot, found by their heads."""
        members: list[str] = []
        async for _, member in hot_scopes(self._tiers, self._user.ref.bucket):
            if member[0] != ScopeKind.APP:
                members.append(member)
            if len(members) == _LOOKED_AT:
                for place in await self._of_user(members):
                    yield place
                members = []
        for place in await self._of_user(members):
            yield place

    async def _of_user(self, members: Sequence[str]) -> list[Place]:
        """Those of some scopes of the bucket that are the user's."""
        user, layout = self._user.ref, self._tiers.layout
        wanted = [user.org.encode(), user.app.encode(), user.user.encode()]
        commands = [(b"HMGET", layout.hash(user.bucket, member), *_IDENTITY) for member in members]
        with within(self._tiers.settings.timeout):
            heads = await self._tiers.link.exchange(commands, {}) if commands else []
        places = []
        for member, head in zip(members, heads, strict=True):
            if isinstance(head, list) and head[:3] == wanted and head[4] is not None:
                ref = ScopeRef(ScopeKind(member[0]), user.org, user.app, user.user, (head[3] or b"").decode())
                places.append(layout.place(replace(ref, id=member[1:], bucket=user.bucket)))
        return places
