"""Registering: SQL's fence names a bucket's incarnation before anything is built on it (R17)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sessioncache.durable.answers import Swap
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.incarnations import Incarnations

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_ROUNDS = 8
"""Rounds in which others may have moved a fence meanwhile before we give up."""


class Registrar:
    """Swaps the fence of buckets to the incarnation that their Redis has now."""

    def __init__(self, incarnations: Incarnations, durable: DurableTier) -> None:
        self._incarnations = incarnations
        self._durable = durable
        self._busy = asyncio.Lock()
        self._wanted: set[int] = set()

    async def register(self, buckets: Iterable[int]) -> None:
        """Register buckets; a Redis whose incarnation was replaced in SQL makes a new one first.

        What many calls ask for at once is registered once, in one go.
        """
        own = set(buckets)
        self._wanted |= own
        async with self._busy:
            if not own & self._wanted:
                return
            todo, self._wanted = sorted(self._wanted), set()
            await self._rounds(todo, {})

    async def renew(self, buckets: Iterable[int]) -> None:
        """Give buckets a new incarnation, and register it."""
        todo = sorted(set(buckets))
        async with self._busy:
            found = await self._incarnations.current(todo, {})
            await self._rounds(todo, {bucket: incarnation for bucket, (incarnation, _) in found.items()})

    async def _rounds(self, todo: list[int], unusable: Mapping[int, str]) -> None:
        for _ in range(_ROUNDS):
            unusable = await self._round(todo, unusable)
            todo = sorted(unusable)
            if not todo:
                return
        raise HotTierUnavailableError(
            "other processes keep replacing the incarnation of this Redis in SQL: two hot tiers?"
        )

    async def _round(self, buckets: list[int], unusable: Mapping[int, str]) -> dict[int, str]:
        """One try; what is still to be done, with the incarnation that must not be used again ('' if it may)."""
        # The row is read before Redis is asked: an incarnation that we saw earlier could be outdated by the swap.
        fences = await self._durable.read_fences(buckets)
        found = await self._incarnations.current(buckets, unusable)
        swaps = await self._durable.swap_fences({b: (fences.get(b), inc) for b, (inc, _) in found.items()})
        done = {b: found[b][0] for b, swap in swaps.items() if swap in (Swap.CURRENT, Swap.SWAPPED)}
        await self._incarnations.confirm(done)
        replaced = sum(1 for b, swap in swaps.items() if swap is Swap.SWAPPED and fences.get(b))
        if replaced:
            logger.warning("Redis may have forgotten something: %d buckets have a new incarnation", replaced)
        return {b: found[b][0] if swap is Swap.REPLACED else "" for b, swap in swaps.items() if b not in done}
