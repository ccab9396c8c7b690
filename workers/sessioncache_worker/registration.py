"""Registration: buckets are registered in SQL beside the rounds; one whose fence is locked holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from sessioncache.coordination.fencing import Fencing
from sessioncache.errors import SessionCacheError
from sessioncache.primitives.deadline import within

_TIMEOUT = 5.0
"""Seconds that are waited for a registration; it continues, and is met again by the next try."""
_PAUSE = 1.0
"""Seconds between two tries."""


class Registration:
    """Registers the buckets that rounds came across."""

    def __init__(
        self,
        fencing: Fencing,
        done: Callable[[Iterable[int]], None],
        failed: Callable[[SessionCacheError], Awaitable[bool]],
    ) -> None:
        """`done` is called with buckets that were tried; `failed` with an error: whether to try again."""
        self._fencing, self._done, self._failed = fencing, done, failed
        self._wanted: set[int] = set()
        self._asked = asyncio.Event()
        self._fatal: SessionCacheError | None = None
        self.is_stuck = False
        """Whether the latest try failed."""

    def want(self, buckets: Collection[int]) -> None:
        """Have buckets registered soon."""
        if buckets:
            self._wanted.update(buckets)
            self._asked.set()

    def check(self) -> None:
        """Raise what was found that no further try can help."""
        if self._fatal is not None:
            raise self._fatal

    async def run(self) -> None:
        """Register what is wanted, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            buckets, self._wanted = self._wanted, set()
            try:
                await self._try(buckets)
            finally:
                self._done(buckets)

    async def _try(self, buckets: Collection[int]) -> None:
        try:
            with within(_TIMEOUT):
                await self._fencing.register(buckets)
        except SessionCacheError as error:
            self.is_stuck = True
            if not await self._failed(error):
                self._fatal = error
            await asyncio.sleep(_PAUSE)
        else:
            self.is_stuck = False
