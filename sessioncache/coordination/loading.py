"""Loadings: work that many calls wait for, and that none of them ends (R13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context

from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.layout import Place
from sessioncache.primitives.deadline import seconds_left, within

_LONGEST = 30.0
"""Seconds that a loading may take: the slowest scope within the limits, on a slow connection and a busy database."""
_TO_END = 1.0
"""Seconds that loadings have to give their tokens back when the cache is closed."""


class Progress:
    """What a loading is waiting for, a tier or another process: reported to a caller whose time is over."""

    def __init__(self) -> None:
        self._asks_sql = False
        self._is_behind = False

    @contextmanager
    def asking_sql(self) -> Iterator[None]:
        """Within the block the database is waited for, otherwise Redis."""
        self._asks_sql = True
        try:
            yield
        finally:
            self._asks_sql = False

    @contextmanager
    def behind_another(self) -> Iterator[None]:
        """Within the block another process is waited for, which has the token."""
        self._is_behind = True
        try:
            yield
        finally:
            self._is_behind = False

    def late(self) -> Exception:
        """The error of a caller whose time is over."""
        if self._is_behind:
            return held_elsewhere()
        if self._asks_sql:
            return DurableTierUnavailableError("the scope could not be loaded from the database in time")
        return HotTierUnavailableError("Redis did not answer in time while a scope was made ready in it")


def held_elsewhere() -> DurableTierUnavailableError:
    """The error where another process did not finish in time what has to come first: no tier need be to blame."""
    return DurableTierUnavailableError(
        "a scope is missing in Redis: another process has been loading or creating it for too long"
    )


class Loadings:
    """At most one loading of a scope at a time in this process; each is a task of its own, with a time of its own.

    A caller waits until its own time is over.  The loading continues: for others, and for the next attempt of the same.
    """

    def __init__(self) -> None:
        self._running: dict[Place, tuple[asyncio.Task[None], Progress]] = {}

    async def share(self, place: Place, load: Callable[[Progress], Awaitable[None]]) -> None:
        """Wait for the loading of a scope, which `load` begins if there is none; its outcome.

        DurableTierUnavailableError, or HotTierUnavailableError, where it takes longer than the caller waits.
        """
        if place in self._running:
            loading, progress = self._running[place]
        else:
            progress = Progress()
            # In an empty context: the deadline of the first caller must not bind the others.
            loading = asyncio.get_running_loop().create_task(_run(load, progress), context=Context())
            self._running[place] = loading, progress
            loading.add_done_callback(lambda done: self._end(place, done))
        # `wait_for` would cancel the loading, and the next attempt would begin from the start.
        done, _ = await asyncio.wait({loading}, timeout=seconds_left())
        if not done:
            raise progress.late()
        loading.result()

    def _end(self, place: Place, done: asyncio.Task[None]) -> None:
        del self._running[place]
        if not done.cancelled():
            done.exception()  # callers that still wait get it; without any it is of no interest

    async def aclose(self) -> None:
        """Cancel what is under way."""
        running = [loading for loading, _ in self._running.values()]
        for loading in running:
            loading.cancel()
        if running:
            await asyncio.wait(running, timeout=_TO_END)


async def _run(load: Callable[[Progress], Awaitable[None]], progress: Progress) -> None:
    with within(_LONGEST):
        await load(progress)
