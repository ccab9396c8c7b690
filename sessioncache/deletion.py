"""Deleting a session: also one that is not hot, without loading it, and when Redis has no memory left."""

from __future__ import annotations

from sessioncache.hot.calls import Deleted, Gone, Need, TokenLost, Unready
from sessioncache.hot.layout import Place
from sessioncache.tiers import Tiers


class Deletion:
    """One attempt to delete a session of whatever life."""

    def __init__(self, tiers: Tiers, place: Place, *, unused_since: int | None = None) -> None:
        """`unused_since`: delete only what has not been in use since that revision, and is durable."""
        self._tiers = tiers
        self._place = place
        self._unused_since = unused_since

    async def attempt(self) -> Deleted:
        """What was deleted; raises Gone where the session is in neither tier."""
        while True:
            try:
                return await self._tiers.hot.delete(self._place, unused_since=self._unused_since)
            except Unready as why:
                if why.need is not Need.COLD:
                    raise
            outcome = await self._delete_cold()
            if outcome is not None:
                return outcome

    async def _delete_cold(self) -> Deleted | None:
        """Put a tombstone where nothing is hot, under the token under which SQL showed the session."""
        found = await self._tiers.hydrator.find(self._place)
        if found is None:
            return None
        try:
            if found.is_free:
                await self._tiers.hot.confirm_absent(self._place, found.token)
                raise Gone
            return await self._tiers.hot.bury(self._place, found.token, found.stored, unused_since=self._unused_since)
        except TokenLost:
            return None
