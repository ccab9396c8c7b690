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
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError, SessionCacheError
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
        self._busy = asyncio.Lock()
        self._wanted: set[int] = set()
        self._failure: SessionCacheError | None = None
        """The error of the last registration."""
        self._quiet_until = 0.0
        self._forgetful = 0
        self._telling: asyncio.TimerHandle | None = None

    async def register(self, buckets: Iterable[int]) -> None:
        """Register buckets; a Redis whose incarnation was replaced in SQL makes a new one first.

        Buckets that many calls ask for at once are registered once, together, and all of these calls get that outcome.
        """
        own = set(buckets)
        self._wanted |= own
        async with self._busy:
            if not own & self._wanted:  # another call has registered them meanwhile
                if self._failure is not None:
                    raise self._failure
                return
            todo, self._wanted, self._failure = sorted(self._wanted), set(), None
            try:
                await self._rounds(todo, {})
            except SessionCacheError as error:
                self._failure = error
                raise

    async def look(self, buckets: Iterable[int]) -> None:
        """Let Redis make a new incarnation where it forgot something; SQL is not asked."""
        await self._incarnations.current(sorted(set(buckets)), {})

    async def renew(self, buckets: Iterable[int]) -> None:
        """Give buckets a new incarnation, and register it."""
        todo = sorted(set(buckets))
        async with self._busy:
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
        fences = await (self._durable.read_fences(buckets) if unusable else self._fences(buckets))
        if fences is None:
            return {}
        await self._incarnations.claim()
        found = await self._incarnations.current(buckets, unusable, replaced=replaced)
        await self._incarnations.claim()  # again: Redis may have forgotten it since
        # R17: one that stays although the replid has changed stays only where SQL still names it.
        lapsed = {b: one.id for b, one in found.items() if one.kept and fences.get(b) != one.id}
        named = {b: one.id for b, one in found.items() if one.kept and b not in lapsed}
        if named:  # nothing is to be written: SQL may be locked, or read-only, for now
            await self._durable.check_owned(named.values())
        rest = {b: (fences.get(b), one.id) for b, one in found.items() if not one.kept}
        swaps = await self._durable.swap_fences(rest) if rest else {}
        # A swap that lost, or was of an incarnation that SQL has replaced before, is left for the next round.
        done = named | {b: found[b].id for b, swap in swaps.items() if swap in (Swap.CURRENT, Swap.SWAPPED)}
        renewed = {b: fences[b] for b, swap in swaps.items() if swap is Swap.SWAPPED and fences.get(b)}
        # Where Redis still had the old incarnation, and we gave it up, nothing shows that Redis forgot anything.
        forgetful = {b for b, before in renewed.items() if before not in (found[b].before, unusable.get(b))}
        await self._incarnations.confirm(done, forgetful)
        self._tell(len(renewed), len(forgetful))
        return lapsed | {b: found[b].id if swap is Swap.REPLACED else "" for b, swap in swaps.items() if b not in done}

    async def _fences(self, buckets: list[int]) -> dict[int, str] | None:
        """The incarnations that SQL names; None where SQL is away and Redis has forgotten nothing: it may be used."""
        try:
            with within(_PATIENCE):
                return await self._durable.read_fences(buckets)
        except DurableTierUnavailableError:
            if await self._incarnations.keep(buckets):
                return None
        return await self._durable.read_fences(buckets)

    def _tell(self, renewed: int, forgetful: int) -> None:
        """Log a restart; it is no alarm as long as nothing shows that anything was lost."""
        now = asyncio.get_running_loop().time()
        self._forgetful += forgetful
        if forgetful and self._telling is None:
            self._tell_forgetful()
        elif not forgetful and renewed and now >= self._quiet_until:
            logger.info("Redis was started anew, as far as it can tell with all that it had")
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
