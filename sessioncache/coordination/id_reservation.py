"""Id reservation: holding an id that no session has until the create that uses it (R13).

A token shows that the id is free; where SQL had to be read for that, Redis holds the token as for a loader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

from sessioncache.coordination.tiers import Tiers
from sessioncache.hot.layout import Place
from sessioncache.hot.signals import Need, TokenLost, Unready
from sessioncache.primitives.revisions import ZERO, encode_revision

T = TypeVar("T")

_GENERATED = b"*"
_UNREAD = b""


class IdReservation:
    """The id of a session that is to be created."""

    def __init__(self, tiers: Tiers, place: Place, *, generated: bool) -> None:
        """`generated`: the id was just made up, and nobody can have it: SQL need not be asked."""
        self._tiers = tiers
        self._place = place
        self._token, self._known = (_GENERATED if generated else _UNREAD), ZERO
        self._keeping = ExitStack()
        """The renewal of the token, from when it is known until it is used, given back or lost."""

    async def fill(self, create: Callable[[bytes, bytes], Awaitable[T]]) -> T:
        """Call `create` with the token and the largest revision that SQL knows, until the token is right.

        Raises what `create` raises, Taken among it.  The token is kept, also between calls, until `end`.
        """
        while True:
            try:
                return await create(self._token, self._known)
            except TokenLost:
                # Somebody wrote under this id since SQL was read: whether it is free has to be found out anew.
                self._keeping.close()
                self._token = _UNREAD
            except Unready as why:
                # What else is not ready, a shared scope say, is for the caller to prepare.
                if why.need is not Need.COLD or why.places != [self._place] or self._token != _UNREAD:
                    raise
                await self._look()

    async def _look(self) -> None:
        found = await self._tiers.hydrator.find(self._place)
        if found is None:
            return
        if found.is_free:
            self._token, self._known = found.token, encode_revision(found.known)
            # Kept: what is to be created may take long to be read and stored.
            self._keeping.enter_context(self._tiers.hot.kept(self._place, found.token))
        else:
            # The id is taken: once the session is hot, the next attempt says so.
            await self._tiers.hydrator.install(self._place, found)

    async def end(self, *, is_filled: bool) -> None:
        """Stop renewing the token; give it back where nothing was created."""
        self._keeping.close()
        if not is_filled and self._token not in (_GENERATED, _UNREAD):
            await self._tiers.hydrator.release(self._place, self._token)
