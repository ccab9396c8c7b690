"""Joint work: what many calls ask for at once is done once, for all of them together.

After a failover every call finds its bucket unregistered at the same moment.  One transaction for all of them is cheap;
one for each call would take a connection each, and wait for the locks of the same fences.

The work is a task of its own: a caller whose time is over, or who is cancelled, leaves it to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context
from copy import copy
from dataclasses import dataclass, field

from sessioncache.errors import ConfigurationError, DurableTierUnavailableError, SessionCacheError
from sessioncache.primitives.deadline import deadline, seconds_left, within

_APART = 1.0
"""Seconds that a lot waits for the one before."""
_TO_END = 1.0
"""Seconds that a task has to end when the cache is closed."""

Work = Callable[[list[int], float], Awaitable[Collection[int]]]
"""Works on buckets, of whose waiting callers the most hurried has so many seconds; the buckets that are left."""


@dataclass(eq=False, slots=True)
class _Lot:
    """What is worked on together."""

    buckets: set[int] = field(default_factory=set)
    deadlines: list[float] = field(default_factory=list)
    """When each of the callers that still wait gives up."""


class JointWork:
    """One kind of work on buckets: one lot after the other, while the next one is gathered."""

    def __init__(self, work: Work, longest: float) -> None:
        """`longest`: seconds that a lot may take."""
        self._work, self._longest = work, longest
        self._gathered: tuple[_Lot, asyncio.Task[set[int]]] | None = None
        self._tasks: set[asyncio.Task[set[int]]] = set()
        self._turn = asyncio.Lock()
        self._latest: asyncio.Task[set[int]] | None = None
        """The lot that began last."""

    async def do(self, buckets: Collection[int]) -> set[int]:
        """Have these worked on; those of them that are left.

        Raises:
            DurableTierUnavailableError: It takes longer than the caller waits.
            ConfigurationError: The cache was closed meanwhile.
            SessionCacheError: Whatever the work raised.
        """
        if self._gathered is None:
            begun = _Lot()
            # In an empty context: the deadline of the first caller must not bind the others.
            made = asyncio.get_running_loop().create_task(self._run(begun), context=Context())
            self._gathered = begun, made
            self._tasks.add(made)
            made.add_done_callback(self._end)
        lot, task = self._gathered
        lot.buckets.update(buckets)
        until = deadline()
        lot.deadlines.append(until)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds_left())
        finally:
            lot.deadlines.remove(until)
        if not done:
            raise DurableTierUnavailableError(
                "the SQL database did not register buckets of this Redis in time: it is slow, or others hold locks on"
                " sessioncache_fence"
            )
        if task.cancelled():
            raise ConfigurationError("this cache has been closed")
        error = task.exception()
        if isinstance(error, SessionCacheError):
            raise copy(error)  # each caller its own: a shared one would gather the traceback of all of them
        return task.result().intersection(buckets)

    async def _run(self, lot: _Lot) -> set[int]:
        async with self._turn:
            # A lot that takes long may hang on its connection: the next one begins beside it.
            if self._latest is not None:
                await asyncio.wait({self._latest}, timeout=_APART)
            self._gathered, self._latest = None, asyncio.current_task()
        hurried = min(lot.deadlines, default=None)
        seconds = self._longest if hurried is None else hurried - asyncio.get_running_loop().time()
        with within(self._longest):
            return set(await self._work(sorted(lot.buckets), seconds))

    def _end(self, done: asyncio.Task[set[int]]) -> None:
        self._tasks.discard(done)
        if self._latest is done:
            self._latest = None
        if done.cancelled():
            self._gathered = None
        else:
            done.exception()  # callers that still wait get it; without any it is of no interest

    async def aclose(self) -> None:
        """Cancel what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_TO_END)
