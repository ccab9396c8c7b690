"""Tokens of loaders: renewed as long as their holders work (R13).

A token that lasted as long as the slowest load would keep everybody from a scope whose loader was killed; one that
ended soon would let the next loader overtake a slow one again and again.  So it is short, and its holder renews it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from typing import Self

from sessioncache.errors import HotTierUnavailableError, MemoryFullError
from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Place
from sessioncache.hot.scripts import load_script
from sessioncache.primitives.deadline import within

TOKEN_LIFETIME_MS = 2_000
"""Milliseconds after which another loader takes over from a silent one."""
_EVERY = TOKEN_LIFETIME_MS / 4 / 1000
"""Seconds between two renewals: a few may be late."""


class Kept:
    """Renews tokens on a timer for as long as its block lasts, or they are lost: ``with Kept(…):``."""

    def __init__(self, link: HotClient, held: Sequence[tuple[Place, bytes]]) -> None:
        """Keep the tokens of these scopes, which are held."""
        self._link = link
        self._calls = [([place.control, place.hash], (token, TOKEN_LIFETIME_MS)) for place, token in held]
        self._renewing: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        # A timer first: most loadings end before the first renewal, and need no task.
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _begin(self) -> None:
        # In an empty context: the deadline of the loader is not that of a renewal.
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), context=Context())

    async def _renew(self) -> None:
        while self._calls:
            # A renewal that fails is repeated: the token outlives a few of them.
            with suppress(HotTierUnavailableError, MemoryFullError), within(5 * _EVERY):
                await self.renew()
            await asyncio.sleep(_EVERY)

    async def renew(self) -> bool:
        """Renew once; whether all tokens are still held.  Lost ones are not renewed any more."""
        replies = await self._link.call_many(load_script("hold"), self._calls)
        held = [one for one, reply in zip(self._calls, replies, strict=True) if reply[0] == b"ok"]
        are_held, self._calls = len(held) == len(self._calls), held
        return are_held
