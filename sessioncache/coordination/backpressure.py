"""Back-pressure: above a limit of unflushed data (number of dirty scopes, age) writes are refused or wait (R18).

Dirty data is pinned (R15), so that without a limit it would fill Redis while SQL is away.  The limit is no exact one: a
measurement that is up to a second old is good enough, and costs most writes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sessioncache.errors import BackPressureError
from sessioncache.hot.backlog import Backlog
from sessioncache.primitives.deadline import seconds_left
from sessioncache.settings import CacheSettings

_GOOD_FOR = 1.0
"""Seconds for which a measurement is good: one process of the fleet measures all buckets, the others read the
result."""
_PAUSE = 0.1
"""Seconds between two reads of the measurement while a write waits."""


@dataclass(frozen=True, slots=True)
class DirtReading:
    """How much is waiting for SQL."""

    dirty: int
    """Scopes with something that SQL lacks, dead letters left out."""
    oldest_age: float
    """Seconds that the oldest of it has been waiting."""
    at: float
    """When this was read, by the event loop's clock."""


class BackPressure:
    """Decides whether a write is admitted."""

    def __init__(self, backlog: Backlog, settings: CacheSettings) -> None:
        self._backlog = backlog
        self._buckets = range(settings.buckets)
        self._max_dirty = settings.max_dirty
        self._max_age = settings.max_dirty_age
        self._waits = settings.on_full == "wait"
        self._reading: DirtReading | None = None
        self._busy = asyncio.Lock()

    @property
    def is_low(self) -> bool:
        """Whether a measurement that is still good was below the limits: then a write need not ask for admission."""
        reading = self._reading
        return (
            reading is not None
            and asyncio.get_running_loop().time() - reading.at < _GOOD_FOR
            and self._lets_in(reading)
        )

    def told(self) -> str:
        """How much waits for the database by the last measurement; empty if there is none."""
        return f"{self._reading.dirty:,} scopes wait to be flushed" if self._reading else ""

    async def admit(self) -> None:
        """Return when a write may be made; BackPressureError when the limit is reached (and waiting did not help)."""
        while True:
            reading = await self._current()
            if self._lets_in(reading):
                return
            # Without time for a pause: the time-out that would follow says less than these numbers.
            if not self._waits or seconds_left() <= _PAUSE:
                raise BackPressureError(
                    f"{reading.dirty} scopes are waiting for the database, the oldest for {reading.oldest_age:.0f} s; "
                    "nothing was written: see that a worker runs and reaches the database",
                    dirty=reading.dirty,
                    oldest_age=reading.oldest_age,
                )
            await asyncio.sleep(_PAUSE)

    def _lets_in(self, reading: DirtReading) -> bool:
        return reading.dirty < self._max_dirty and reading.oldest_age < self._max_age

    async def _current(self) -> DirtReading:
        now = asyncio.get_running_loop().time()
        if self._reading is not None and now - self._reading.at < _GOOD_FOR:
            return self._reading
        async with self._busy:
            # Another call may have measured while this one waited for the lock.
            if self._reading is None or now - self._reading.at >= _GOOD_FOR:
                self._reading = await self._look()
        return self._reading

    async def _look(self) -> DirtReading:
        noted = await self._backlog.pressure(_GOOD_FOR)
        # Redis gives one process of the fleet the order to measure; for all others the result of the last one is good.
        if noted.measure:
            dirty = sum((await self._backlog.count_dirty(self._buckets)).values())
            oldest = await self._backlog.oldest(self._buckets)
            noted = await self._backlog.pressure(_GOOD_FOR, dirty=dirty, oldest=oldest or 0)
        # Never negative: the clock of Redis may have been set back.
        age = max(0.0, (noted.now - noted.oldest) / 1_000_000) if noted.oldest else 0.0
        return DirtReading(noted.dirty, age, asyncio.get_running_loop().time())
