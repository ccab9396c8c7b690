"""Loading scopes: work that many calls wait for, and that no single one of them ends (R13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context

from sessioncache.deadline import seconds_left, within
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.layout import Place

_LONGEST = 30.0
"""Seconds that a loading may take: the slowest scope within the limits, on a slow link and a busy database."""
_TO_END = 1.0
"""Seconds that loadings have to give their tokens back when the cache is closed."""


class Loadings:
    """At most one loading of a scope at a time in this process; each is a task of its own, with a time of its own.

    A caller waits until its own time is over.  The loading goes on then: for others, and for the next try of the same.
    """

    def __init__(self) -> None:
        self._running: dict[Place, asyncio.Task[None]] = {}

    async def share(self, place: Place, load: Callable[[], Awaitable[None]]) -> None:
        """Wait for the loading of a scope, which `load` begins if there is none; its outcome.

        DurableTierUnavailableError where it takes longer than the caller waits.
        """
        loading = self._running.get(place)
        if loading is None:
            loading = asyncio.get_running_loop().create_task(_run(load), context=Context())
            self._running[place] = loading
            loading.add_done_callback(lambda done: self._end(place, done))
        done, _ = await asyncio.wait({loading}, timeout=seconds_left())
        if not done:
            raise DurableTierUnavailableError("the scope could not be loaded from the database in time")
        loading.result()

    def _end(self, place: Place, done: asyncio.Task[None]) -> None:
        del self._running[place]
        if not done.cancelled():
            done.exception()  # whoever still waits is told; if nobody does, it is of no interest

    async def aclose(self) -> None:
        """End what is under way."""
        running = list(self._running.values())
        for loading in running:
            loading.cancel()
        if running:
            await asyncio.wait(running, timeout=_TO_END)


async def _run(load: Callable[[], Awaitable[None]]) -> None:
    with within(_LONGEST):
        await load()
