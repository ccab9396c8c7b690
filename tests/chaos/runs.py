"""Runs under a lease: all actors of a user fight for one session, and who holds its lease notes what it does in a list.

Notes of two runs never mix in the list: once another run has noted something, the one before it had lost the lease.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from sessioncache import Session, SessionCache
from tests.chaos.cast import RUNS, SPACE
from tests.chaos.journal import Journal

LEASE = 0.5
"""Seconds of a run lease."""
_WAIT = 0.3
_PAUSE = 0.05


class Runner:
    """One actor among those who fight."""

    def __init__(
        self, cache: SessionCache, journal: Journal, user: str, numbers: Iterator[int], chance: random.Random
    ) -> None:
        self._cache, self._journal, self._user, self._numbers, self._chance = cache, journal, user, numbers, chance

    async def act(self) -> None:
        """One run, if the lease can be had."""
        session, _ = await self._cache.get_or_create(self._user, RUNS)
        async with session.lease(ttl=LEASE, wait=_WAIT) as held:
            run = next(self._numbers)
            for _ in range(self._chance.randint(1, 6)):
                await self._note(held, run)
                await asyncio.sleep(self._chance.expovariate(1 / _PAUSE))

    async def _note(self, held: Session, run: int) -> None:
        item, within = next(self._numbers), self._chance.random() < 0.5
        list_ = f"{SPACE}/{RUNS}" if within else RUNS
        with self._journal.call(notes=f"r|{self._user}|{list_}", item=item, run_of=run):
            await (held.namespace(SPACE) if within else held).append(RUNS, item)
