"""A process that fights for the lease of a session, over and over, and writes as long as it believes to hold it.

``python -m tests.races.lease_fighter REDIS DATABASE NAME TTL JOURNAL STOP``: JSON lines go to the file JOURNAL, until
the file STOP is there.  A turn begins by counting `fence`; its writes carry the count and their number.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TextIO

from sessioncache import LeaseUnavailableError, OutcomeUnknownError, Session, SessionCache, StaleLeaseError

_TURN = 1.0
"""Seconds of one turn; longer than the lease, which renews itself."""


class Fighter:
    """One runner."""

    def __init__(self, session: Session, name: str, ttl: float, journal: TextIO) -> None:
        self._session, self._name, self._ttl, self._journal = session, name, ttl, journal

    async def fight(self) -> None:
        """One turn, as soon as the lease is to be had."""
        try:
            async with self._session.lease(self._ttl, wait=0.5) as held:
                await self._turn(held)
        except LeaseUnavailableError:
            pass

    async def _turn(self, held: Session) -> None:
        try:
            count = await held.increment("fence")
        except StaleLeaseError:
            return
        self._note("holding", count)
        ends, number = time.monotonic() + _TURN, 0
        # Whoever was stopped does not look at the clock first: it goes on writing.
        while number == 0 or time.monotonic() < ends or self._was_stopped(ends):
            number += 1
            if not await self._write(held, count, number):
                return
        self._note("over", count)

    def _was_stopped(self, ends: float) -> bool:
        return time.monotonic() > ends + self._ttl

    async def _write(self, held: Session, count: int, number: int) -> bool:
        values = {f"turn-{count}": [self._name, number], "last": [self._name, count, number]}
        if number == 1:
            values[f"first-{count}"] = [self._name]
        try:
            await held.update(values)
        except (StaleLeaseError, OutcomeUnknownError) as error:
            self._note("refused" if isinstance(error, StaleLeaseError) else "unknown", count, number)
            return False
        self._note("acknowledged", count, number)
        return True

    def _note(self, what: str, *numbers: int) -> None:
        print(json.dumps([what, *numbers]), file=self._journal)


def open_journal(path: str) -> TextIO:
    """The file that notes go to, line by line."""
    return Path(path).open("a", buffering=1)


def is_over(stop: str) -> bool:
    """Whether the fight is over."""
    return Path(stop).exists()


async def main() -> None:
    """Fight until it is over."""
    redis_url, database_url, name, ttl, path, stop = sys.argv[1:]
    journal = open_journal(path)
    async with SessionCache.connect(redis_url, database_url, app="app", timeout=30.0) as cache:
        session = await cache.get("ada", "s1")
        fighter = Fighter(session, name, float(ttl), journal)
        while not is_over(stop):
            await fighter.fight()


if __name__ == "__main__":
    asyncio.run(main())
