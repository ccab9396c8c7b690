"""Ours: Redis first, and a worker process of its own that writes to PostgreSQL all the while."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.peer import PREFIXES, AsyncPeer, changes, check, initial_state
from benchmarks.peers.stage import Stage
from sessioncache import Session, SessionCache
from sessioncache.primitives.scopes import ScopeRef
from tests.helpers import Urls, app, beating, connect, session, start_worker, stored_values, upgrade, user
from tests.waiting import wait_until_async

_APP = "app"


class NotDurableError(Exception):
    """SQL lacks what was acknowledged as durable."""


class Ours(AsyncPeer):
    """Two caches take turns on each session: every scope was changed by the other since a handle last read it."""

    def __init__(self, urls: Urls, caches: tuple[SessionCache, SessionCache]) -> None:
        self._urls = urls
        self._caches = caches
        self._handles: list[tuple[Session, Session]] = []
        self._last: dict[int, int] = {}
        self._made = 0
        self.durable_after: list[float] = []
        """Seconds from the end of each round until all of it was durable."""

    @classmethod
    @asynccontextmanager
    async def open(cls, stage: Stage) -> AsyncIterator[Ours]:
        """Both caches, and the worker."""
        urls = Urls(stage.redis.url, stage.database())
        await upgrade(urls.database)
        with start_worker(urls) as worker:
            await wait_until_async(lambda: worker.pid in beating(urls.redis), 20, "the worker has a heartbeat")
            async with connect(urls, app=_APP) as one, connect(urls, app=_APP) as other:
                yield cls(urls, (one, other))

    async def prepare(self, sessions: int) -> None:
        """See AsyncPeer."""
        self._last.clear()
        self._handles = [await self.create(initial_state()) for _ in range(sessions)]

    async def create(self, state: dict[str, str]) -> tuple[Session, Session]:
        """A session, and a handle on it of either cache."""
        self._made += 1
        name = f"s{self._made}"
        first = await self._caches[0].create(f"u{self._made}", session_id=name, state=state)
        return first, await self._caches[1].get(first.user, name)

    async def turn(self, number: int, turn: int) -> None:
        """See AsyncPeer."""
        handle = self._handles[number][turn % 2]
        await handle.refresh()
        check(dict(handle.state))
        await handle.update(changes(turn))
        self._last[number] = turn

    async def run(self, in_flight: int, seconds: float) -> float:
        """See AsyncPeer; then wait until all is durable, and look whether it is."""
        found = await super().run(in_flight, seconds)
        ended = time.perf_counter()
        for cache in self._caches:
            await cache.flush()
        self.durable_after.append(time.perf_counter() - ended)
        for number, turn in self._last.items():
            self._compare(self._handles[number][0], turn)
        return found

    def _compare(self, handle: Session, turn: int) -> None:
        """SQL has what the last turn of a session wrote; the app's key is everybody's, so it only has to be there."""
        wanted = changes(turn)
        for prefix, scope in zip(PREFIXES, _scopes(handle), strict=True):
            stored = stored_values(self._urls.database, scope) or {}
            for key, value in wanted.items():
                bare = key.removeprefix(prefix)
                if key.startswith(prefix) and ":" not in bare and not _is(stored.get(bare), value, prefix):
                    raise NotDurableError(f"{key} of {handle.id}")


def _scopes(handle: Session) -> tuple[ScopeRef, ScopeRef, ScopeRef]:
    return session(handle.user, handle.id, _APP), user(handle.user, _APP), app(_APP)


def _is(stored: object, wanted: str, prefix: str) -> bool:
    return stored is not None if prefix == "app:" else stored == wanted
