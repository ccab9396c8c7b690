"""Vacancies: that no session lives under an id, shown by a token where SQL had to be read (R13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sessioncache.hot.calls import Need, TokenLost, Unready
from sessioncache.hot.layout import Place
from sessioncache.revisions import ZERO, encode_revision
from sessioncache.tiers import Tiers

T = TypeVar("T")

_GENERATED = b"*"
_UNREAD = b""


class Vacancy:
    """The place of a session that is to be created."""

    def __init__(self, tiers: Tiers, place: Place, *, generated: bool) -> None:
        """`generated`: the id was just made up: SQL need not be asked."""
        self._tiers = tiers
        self._place = place
        self._token, self._known = (_GENERATED if generated else _UNREAD), ZERO

    async def fill(self, create: Callable[[bytes, bytes], Awaitable[T]]) -> T:
        """Call `create` with the token and the largest revision that SQL knows, until the token is right.

        Raises what it raises, Taken among it.
        """
        while True:
            try:
                return await create(self._token, self._known)
            except TokenLost:
                self._token = _UNREAD
            except Unready as why:
                if why.need is not Need.COLD or why.places != [self._place] or self._token != _UNREAD:
                    raise
                await self._look()

    async def _look(self) -> None:
        found = await self._tiers.hydrator.find(self._place)
        if found is None:
            return
        if found.is_free:
            self._token, self._known = found.token, encode_revision(found.known)
        else:
            await self._tiers.hydrator.install(self._place, found)

    async def release(self) -> None:
        """Give the token back: nothing was created."""
        if self._token not in (_GENERATED, _UNREAD):
            await self._tiers.hydrator.release(self._place, self._token)
