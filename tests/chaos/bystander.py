"""Somebody whom few faults concern: writes to one session, waits until that is durable, and reads, again and again.

What a fault must not touch shows here: that one refused head delays nobody else's flush, that a flush() which has
returned is true, that reading goes on while writes are refused, that nobody loses a lease for nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from sessioncache import Session, SessionCache, SessionCacheError
from tests import helpers
from tests.chaos.cast import APP, open_cache
from tests.helpers import Urls, fetch
from tests.waiting import wait_until_async

_USER, _ID = "bystander", "s"
_PAUSE = 0.2
_VALUE = "SELECT value FROM sessioncache_state WHERE scope_id = ? AND key = 'n' AND NOT deleted"


class Bystander:
    """One process's cache over the agents' way to the servers; a context manager."""

    def __init__(self, urls: Urls, database: str) -> None:
        self._urls, self._database = urls, database
        self._scope = helpers.session(_USER, _ID, APP)
        self._cache: SessionCache | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._number = 0
        self.durable = 0
        """Writes that were durable."""
        self.reads = 0
        self.falls = 0
        """How often SQL was put back: what was durable before need not be there."""
        self.problems: list[str] = []

    async def __aenter__(self) -> Self:
        self._cache = await open_cache(*self._urls)
        self._tasks = [asyncio.create_task(self._again(one)) for one in (self._write, self._read)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()
        if self._cache is not None:
            await self._cache.aclose()

    async def end(self) -> None:
        """Write and read no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def session(self) -> Session:
        """Its session, through a new handle."""
        assert self._cache is not None
        found, _ = await self._cache.get_or_create(_USER, _ID)
        return found

    async def wait_until_durable(self, seconds: float) -> bool:
        """Whether something that it writes from now on is durable within so many seconds."""
        before = self.durable
        try:
            await wait_until_async(lambda: self.durable >= before + 2, seconds, "what a bystander writes is durable")
        except TimeoutError:
            return False
        return True

    async def _again(self, act: Callable[[Session], Awaitable[None]]) -> None:
        session: Session | None = None
        while True:
            try:
                session = session or await self.session()
                await act(session)
            except SessionCacheError:
                session = None
            except Exception as error:  # the run goes on: the verdict tells of it
                self.problems.append(f"a bystander met {error!r}")
                session = None
            await asyncio.sleep(_PAUSE)

    async def _read(self, session: Session) -> None:
        await session.get("n")
        self.reads += 1

    async def _write(self, session: Session) -> None:
        self._number += 1
        number, falls = self._number, self.falls
        await session.set("n", number)
        await session.flush(4)
        await self._check(number, falls)
        self.durable += 1

    async def _check(self, number: int, falls: int) -> None:
        """A flush() that has returned is true."""
        with suppress(Exception):  # out of reach at the moment
            rows = await asyncio.to_thread(fetch, self._database, _VALUE, self._scope.id)
            stored = json.loads(rows[0][0]) if rows else None
            if (stored is None or stored < number) and falls == self.falls:
                self.problems.append(f"flush() returned for {number}, and SQL has {stored}")
