"""Fencing: SQL's fence names the incarnation of a bucket before anything is built on it (R17).

To *register* an incarnation is to swap the fence to it, by compare-and-set.  From then on nobody commits under the one
before: the incarnation is a fencing token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sessioncache.durable.messages import Swap
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.incarnations import Incarnations
from sessioncache.primitives.deadline import within
from sessioncache.primitives.units import counted

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_ROUNDS = 8
"""Rounds after which we give up where others keep moving a fence."""
_PATIENCE = 1.0
"""Seconds that SQL is waited for where Redis may be used without it."""
_QUIET = 60.0
"""Seconds for which a restart of Redis, or a loss that it may have had, is logged once."""


class Fencing:
    """Swaps the fence of buckets to the incarnation that their Redis has now."""

    def __init__(self, incarnations: Incarnations, durable: DurableTier) -> None:
        self._incarnations = incarnations
        self._durable = durable
        self._looking, self._swapping = asyncio.Lock(), asyncio.Lock()
        self._wanted: set[int] = set()
        """Buckets that calls wait for, whatever has to be done."""
        self._unnamed: set[int] = set()
        """Buckets of which SQL has to be written."""
        self._quiet_until = 0.0
        self._forgetful = 0
        self._telling: asyncio.TimerHandle | None = None

    async def register(self, buckets: Iterable[int]) -> None:
        """Register buckets; a Redis whose incarnation was replaced in SQL makes a new one first.

        Buckets that many calls ask for at once are registered once, together.  Those that SQL names already do not
        wait for those of which it has to be written: it may be locked, or read-only, for now.
        """
        own = set(buckets)
        if not own:  # a worker asks so in every round: it waits for nobody
            return
        self._wanted |= own
        async with self._looking:
            if not own & self._wanted:  # another call has registered them, or will
                return
            todo, self._wanted = sorted(self._wanted), set()
            unnamed = set(await self._confirm_named(todo))
        self._unnamed |= unnamed
        async with self._swapping:
            if not unnamed & self._unnamed:
                return
            todo, self._unnamed = sorted(self._unnamed), set()
            await self._rounds(todo, {})

    async def _confirm_named(self, buckets: list[int]) -> list[int]:
        """Confirm the buckets whose incarnation SQL names already; those that are left.

        Where SQL is away, and Redis has forgotten nothing, what SQL has ever known may be used.
        """
        held = await self._incarnations.registered(buckets)
        if not held:
            return buckets
        try:
            with within(_PATIENCE):
                fences = await self._durable.read_fences(sorted(held))
        except DurableTierUnavailableError:
            kept = await self._incarnations.keep(sorted(held))
            return [bucket for bucket in buckets if bucket not in kept]
        named = {bucket: one for bucket, one in held.items() if fences.get(bucket) == one}
        if named:
            await self._durable.check_owned(named.values())
        confirmed = await self._incarnations.confirm(named)
        return [bucket for bucket in buckets if bucket not in confirmed]

    async def look(self, buckets: Iterable[int]) -> None:
        """Let Redis make a new incarnation where it forgot something; SQL is not asked."""
        await self._incarnations.current(sorted(set(buckets)), {})

    async def renew(self, buckets: Iterable[int]) -> None:
        """Give buckets a new incarnation, and register it."""
        todo = sorted(set(buckets))
        async with self._swapping:
            found = await self._incarnations.current(todo, {})
            await self._rounds(todo, {bucket: one.id for bucket, one in found.items()}, replaced=False)

    async def _rounds(self, todo: list[int], unusable: Mapping[int, str], *, replaced: bool = True) -> None:
        for _ in range(_ROUNDS):
            unusable = await self._round(todo, unusable, replaced=replaced)
            todo, replaced = sorted(unusable), True
            if not todo:
                return
        raise HotTierUnavailableError("other processes keep replacing the incarnation of this Redis in SQL: try again")

    async def _round(self, buckets: list[int], unusable: Mapping[int, str], *, replaced: bool) -> dict[int, str]:
        """One attempt; the buckets that are left, each with the incarnation that must not be used again ('' if it
        may)."""
        # The row is read before Redis is asked: an incarnation that we saw earlier could be outdated by the swap.
        fences = await self._durable.read_fences(buckets)
        await self._incarnations.claim()
        found = await self._incarnations.current(buckets, unusable, replaced=replaced)
        await self._incarnations.claim()  # again: Redis may have forgotten it since
        # R17: one that stays although the replid has changed stays only where SQL still names it.
        lapsed = {b: one.id for b, one in found.items() if one.kept and fences.get(b) != one.id}
        swaps = await self._durable.swap_fences({b: (fences.get(b), found[b].id) for b in buckets if b not in lapsed})
        # A swap that lost, or was of an incarnation that SQL has replaced before, is left for the next round.
        done = {b: found[b].id for b, swap in swaps.items() if swap in (Swap.CURRENT, Swap.SWAPPED)}
        renewed = {b: fences[b] for b, swap in swaps.items() if swap is Swap.SWAPPED and fences.get(b)}
        # Where Redis still had the old incarnation, and we gave it up, nothing shows that Redis forgot anything.
        forgetful = {b for b, before in renewed.items() if before not in (found[b].before, unusable.get(b))}
        await self._incarnations.confirm(done, forgetful)
        self._tell(len(renewed), len(forgetful))
        return lapsed | {b: found[b].id if swap is Swap.REPLACED else "" for b, swap in swaps.items() if b not in done}

    def _tell(self, renewed: int, forgetful: int) -> None:
        """Log a restart; it is no alarm as long as nothing shows that anything was lost."""
        now = asyncio.get_running_loop().time()
        self._forgetful += forgetful
        if forgetful and self._telling is None:
            self._tell_forgetful()
        elif not forgetful and renewed and now >= self._quiet_until:
            logger.info("Redis was restarted, as far as it can tell with all its data")
            self._quiet_until = now + _QUIET

    def _tell_forgetful(self) -> None:
        """Log a loss in all buckets since the last line; further ones within a minute are gathered for the next
        line."""
        self._telling = None
        if self._forgetful:
            told = counted(self._forgetful, "bucket")
            logger.warning("Redis may have forgotten something: %s got a new incarnation", told)
            self._forgetful = 0
            self._telling = asyncio.get_running_loop().call_later(_QUIET, self._tell_forgetful)
