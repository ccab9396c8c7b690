"""Deleting a session: also one that is not hot, without loading it, and when Redis has no memory left."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Deleted
from sessioncache.hot.signals import Gone, Need, TokenLost, Unready

if TYPE_CHECKING:
    from sessioncache.coordination.tiers import Tiers


class Unused(NamedTuple):
    """The condition that a session has not been in use since it was found unused."""

    since: int
    """A revision: the session must not have been in use after it."""
    head: int
    """The revision that its head had in SQL when it was found unused."""


class Deletion:
    """One attempt to delete a session of whatever life."""

    def __init__(self, tiers: Tiers, place: Place, unused: Unused | None = None) -> None:
        """`unused`: delete the session only if it has not been in use, and is durable."""
        self._tiers = tiers
        self._place = place
        self._unused = unused

    async def attempt(self) -> Deleted:
        """What was deleted; raises Gone where the session is in neither tier."""
        while True:
            try:
                return await self._tiers.hot.delete(self._place, unused_since=self._since)
            except Unready as why:
                if why.need is not Need.COLD:
                    raise
            outcome = await self._delete_cold()
            if outcome is not None:
                return outcome

    async def _delete_cold(self) -> Deleted | None:
        """Write a tombstone where nothing is hot, under the token under which SQL showed the session."""
        found = await self._tiers.hydrator.find(self._place)
        if found is None:
            return None
        try:
            if found.is_free:
                await self._tiers.hot.confirm_absent(self._place, found.token)
                raise Gone
            if self._unused is not None and found.stored.head.revision > self._unused.head:
                await self._tiers.hydrator.release(self._place, found.token)
                return Deleted(existed=False, written=None)
            return await self._tiers.hot.bury(self._place, found.token, found.stored, unused_since=self._since)
        except TokenLost:
            return None

    @property
    def _since(self) -> int | None:
        return None if self._unused is None else self._unused.since
