"""Registration: buckets are registered in SQL beside the rounds; one whose fence is locked holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from sessioncache.coordination.fencing import Fencing
from sessioncache.errors import SessionCacheError
from sessioncache.primitives.deadline import within

_TIMEOUT = 5.0
"""Seconds that are waited for a registration; it continues, and is met again by the next try."""
_PAUSE = 1.0
"""Seconds between two tries."""
_BRIEF = 1.0
"""Seconds that a round waits for a registration: hardly any takes longer."""


class Registration:
    """Registers the buckets that rounds came across."""

    def __init__(
        self,
        fencing: Fencing,
        done: Callable[[Collection[int]], None],
        failed: Callable[[SessionCacheError], Awaitable[bool]],
    ) -> None:
        """`done` is called with buckets that were tried; `failed` with an error: whether to try again."""
        self._fencing, self._done, self._failed = fencing, done, failed
        self._wanted: set[int] = set()
        self._trying: set[int] = set()
        self._asked = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._fatal: SessionCacheError | None = None
        self._failing: set[int] = set()
        """Buckets of which the latest try failed, and that were not seen to be registered since."""

    @property
    def is_stuck(self) -> bool:
        """Whether some buckets could not be registered."""
        return bool(self._failing)

    def want(self, buckets: Collection[int]) -> None:
        """Have buckets registered soon."""
        if buckets:
            self._wanted.update(buckets)
            self._idle.clear()
            self._asked.set()

    def known(self, buckets: Collection[int]) -> bool:
        """Buckets are registered, whoever did it; whether that is news, and no other one is stuck."""
        if not self._failing.intersection(buckets):
            return False
        self._failing.difference_update(buckets)
        return not self._failing

    def check(self) -> None:
        """Raise what was found that no further try can help."""
        if self._fatal is not None:
            raise self._fatal

    async def settle(self) -> None:
        """Wait until what is wanted is registered, but not for long, and not where something is stuck."""
        if not self.is_stuck:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _BRIEF)

    async def now(self) -> None:
        """Register what is wanted; whatever error that meets."""
        buckets, self._wanted = self._wanted, set()
        self._rest()
        await self._fencing.register(buckets)

    async def run(self) -> None:
        """Register what is wanted, until cancelled."""
        async with asyncio.TaskGroup() as tries:
            while True:
                await self._asked.wait()
                self._asked.clear()
                buckets, self._wanted = self._wanted - self._trying, set()
                # Each by itself: they are worked on together, and none waits for another one's outcome.
                for bucket in buckets:
                    self._trying.add(bucket)
                    tries.create_task(self._try(bucket))
                self._rest()

    async def _try(self, bucket: int) -> None:
        try:
            with within(_TIMEOUT):
                await self._fencing.register([bucket])
        except SessionCacheError as error:
            self._failing.add(bucket)
            if not await self._failed(error):
                self._fatal = error
            await asyncio.sleep(_PAUSE)
        finally:
            self._trying.discard(bucket)
            self._rest()
            self._done([bucket])  # visited again: one that is still unknown comes back here

    def _rest(self) -> None:
        if not self._wanted and not self._trying:
            self._idle.set()
