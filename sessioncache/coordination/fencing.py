"""Fencing: SQL's fence names the incarnation of a bucket before anything is built on it (R17).

To *register* an incarnation is to swap the fence to it, by compare-and-set.  From then on nobody commits under the one
before: the incarnation is a fencing token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from sessioncache.coordination.joint_work import JointWork
from sessioncache.durable.messages import Swap
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.incarnations import Current, Incarnations
from sessioncache.primitives.deadline import within
from sessioncache.primitives.units import counted

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_ROUNDS = 8
"""Rounds after which we give up where others keep moving a fence."""
_PATIENCE = 1.0
"""Seconds that SQL is waited for where Redis may be used without it, at the most."""
_LEAST = 0.1
"""Seconds that SQL has in any case: whoever has less left gives up by itself."""
_TO_CONFIRM, _TO_SWAP = 5.0, 30.0
"""Seconds that a step may take, whatever the time of those who wait for it."""
_QUIET = 60.0
"""Seconds for which a restart of Redis, or a loss that it may have had, is logged once."""


class Fencing:
    """Swaps the fence of buckets to the incarnation that their Redis has now."""

    def __init__(self, incarnations: Incarnations, durable: DurableTier) -> None:
        self._incarnations = incarnations
        self._durable = durable
        # What waits for nothing does not wait for the rest: SQL may be read-only, or some rows of it locked, for now.
        self._steps = (
            JointWork(self._confirm_named, _TO_CONFIRM),
            JointWork(self._swap_free, _TO_SWAP),
            JointWork(self._swap_all, _TO_SWAP),
        )
        self._quiet_until = 0.0
        self._forgetful = 0
        self._telling: asyncio.TimerHandle | None = None

    async def register(self, buckets: Iterable[int]) -> None:
        """Register buckets; a Redis whose incarnation was replaced in SQL makes a new one first.

        First those that SQL names already, then those whose fences nobody holds, then the others.
        """
        left = set(buckets)
        for step in self._steps:
            if not left:
                return
            left = await step.do(left)

    async def _confirm_named(self, buckets: list[int], hurried: float) -> Collection[int]:
        """Confirm the buckets whose incarnation SQL names already; those that are left.

        Where SQL is away, and Redis has forgotten nothing, what SQL has ever known may be used.
        """
        held = await self._incarnations.registered(buckets)
        if not held:
            return buckets
        try:
            with within(max(_LEAST, min(_PATIENCE, hurried / 2))):  # in time for the caller to use what there is
                named = await self._durable.named_by_fences(held)
        except DurableTierUnavailableError:
            done = await self._incarnations.keep(sorted(held))
        else:
            done = await self._incarnations.confirm(named)
        return set(buckets) - done

    async def _swap_free(self, buckets: list[int], _: float) -> Collection[int]:
        """Swap the fences that no other transaction holds; the buckets that are left."""
        return (await self._round(buckets, {}, replaced=True, wait=False))[0]

    async def _swap_all(self, buckets: list[int], _: float) -> Collection[int]:
        """Swap all fences; no bucket is left."""
        await self._rounds(buckets, {})
        return ()

    async def renew(self, buckets: Iterable[int]) -> dict[int, Current]:
        """Give buckets a new incarnation, and register it; what they have now.

        `Current.whole` is the incarnation before, of which Redis had everything when it was replaced.
        """
        todo = sorted(set(buckets))
        # The present one is given up on command, not because SQL replaced it: that is no sign of a second Redis.
        found = await self._incarnations.current(todo, {})
        return await self._rounds(todo, {bucket: one.id for bucket, one in found.items()}, replaced=False)

    async def _rounds(
        self, todo: list[int], unusable: Mapping[int, str], *, replaced: bool = True
    ) -> dict[int, Current]:
        made: dict[int, Current] = {}
        for _ in range(_ROUNDS):
            unusable, found = await self._round(todo, unusable, replaced=replaced)
            # The reply that made an incarnation says what was whole before it; later ones of the same do not.
            made |= {b: one for b, one in found.items() if b not in made or made[b].id != one.id}
            todo, replaced = sorted(unusable), True
            if not todo:
                return made
        raise HotTierUnavailableError("other processes keep replacing the incarnation of this Redis in SQL: try again")

    async def _round(
        self, buckets: list[int], unusable: Mapping[int, str], *, replaced: bool, wait: bool = True
    ) -> tuple[dict[int, str], dict[int, Current]]:
        """One attempt; the buckets that are left, each with the incarnation that must not be used again ('' if it
        may), and the incarnations that were found.

        `wait`: for fences that other transactions hold.
        """
        # The row is read before Redis is asked: an incarnation that we saw earlier could be outdated by the swap.
        fences = await self._durable.read_fences(buckets)
        # R18: before anything is set up in a Redis that forgot everything: whose it is must not depend on who comes
        # first.
        await self._incarnations.claim()
        found = await self._incarnations.current(buckets, unusable, replaced=replaced)
        await self._incarnations.claim()  # again: Redis may have forgotten it since
        # R17: one that stays although the replid has changed stays only where SQL still names it.
        lapsed = {b: one.id for b, one in found.items() if one.kept and fences.get(b) != one.id}
        # Beside a row that another transaction is inserting one would have to wait for it.
        absent = {b: "" for b in buckets if not wait and b not in fences}
        changes = {b: (fences.get(b), found[b].id) for b in buckets if b not in lapsed and b not in absent}
        swaps = await self._durable.swap_fences(changes, wait=wait)
        # A swap that lost, or was of an incarnation that SQL has replaced before, is left for the next round.
        done = {b: found[b].id for b, swap in swaps.items() if swap in (Swap.CURRENT, Swap.SWAPPED)}
        renewed = {b: fences[b] for b, swap in swaps.items() if swap is Swap.SWAPPED and fences.get(b)}
        # Where Redis still had the old incarnation, and we gave it up, nothing shows that Redis forgot anything.
        forgetful = {b for b, before in renewed.items() if before not in (found[b].before, unusable.get(b))}
        await self._incarnations.confirm(done, forgetful)
        self._tell(len(renewed), len(forgetful))
        moved = {b: found[b].id if swap is Swap.REPLACED else "" for b, swap in swaps.items() if b not in done}
        return absent | lapsed | moved, found

    async def aclose(self) -> None:
        """End what is under way."""
        for step in self._steps:
            await step.aclose()
        if self._telling is not None:
            self._telling.cancel()

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
