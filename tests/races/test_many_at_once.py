"""Creates, forks and touches at once on one user whose shared keys others change: nothing goes back (R2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest

from sessioncache import Session, SessionCache
from tests.helpers import Urls, connect, dirty, drain, evict, session, start_worker, stop_worker, stored_values, user

CALLS = 50
WRITERS = 8
ROUNDS = 40
"""Writes of each writer, at least."""


@pytest.fixture
async def caches(urls: Urls) -> AsyncIterator[Sequence[SessionCache]]:
    """Caches with connections of their own: two for the calls, two for the writers, one to watch."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(urls, timeout=30)) for _ in range(5)]


class Writers:
    """Tasks that each count a shared key of their own up, and all of them one together, until they are told to end."""

    def __init__(self, caches: Sequence[SessionCache]) -> None:
        self._caches = caches
        self._end = asyncio.Event()
        self._reached = dict.fromkeys(range(WRITERS), 0)

    async def run(self) -> None:
        """Write until the end."""
        await asyncio.gather(*map(self._write, self._reached))

    async def _write(self, number: int) -> None:
        cache = self._caches[number % len(self._caches)]
        mine: Session = await cache.create("ada", session_id=f"w{number}")
        while not self._end.is_set() or self._reached[number] < ROUNDS:
            self._reached[number] += 1
            await mine.update({f"user:w{number}": self._reached[number], "step": self._reached[number]})
            await mine.increment("user:all")

    def end(self) -> None:
        """Ask all to end."""
        self._end.set()

    @property
    def expected(self) -> dict[str, int]:
        """The shared keys when all have ended."""
        return {f"w{number}": reached for number, reached in self._reached.items()} | {
            "all": sum(self._reached.values())
        }


class Watcher:
    """Reads the shared keys over and over; each of them may only grow."""

    def __init__(self, cache: SessionCache) -> None:
        self._scope = cache.user_scope("ada")
        self.seen: dict[str, int] = {}
        self.went_back: list[tuple[str, int, int]] = []
        self.looks = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._scope.refresh()
            self.look(dict(self._scope.state))

    def look(self, found: dict[str, int]) -> None:
        """Compare with what was seen before."""
        self.looks += 1
        self.went_back += [(key, was, found.get(key, -1)) for key, was in self.seen.items() if found.get(key, -1) < was]
        self.seen = found


async def at_once(one: SessionCache, two: SessionCache) -> None:
    """All creates, forks and touches, on two caches in turn."""
    calls = []
    for number in range(CALLS):
        first, second = (one, two) if number % 2 else (two, one)
        calls += [
            first.create("ada", session_id=f"c{number}", state={"own": number, f"user:c{number}": number}),
            second.fork("ada", "parent", new_id=f"f{number}"),
            first.touch("ada", "parent", messages=1, tokens=number),
        ]
    await asyncio.gather(*calls)


async def check_sessions(cache: SessionCache) -> None:
    """Every session is whole, and no counter is off by one."""
    parent = await cache.get("ada", "parent")
    assert (parent.message_count, parent.token_total) == (CALLS, sum(range(CALLS)))
    for number in range(CALLS):
        forked = await cache.get("ada", f"f{number}")
        assert (forked.state["plan"], forked.forked_from) == ([1, 2], "parent")
        assert (forked.message_count, forked.token_total) == (0, 0)
        assert await forked.namespace("skills").items() == [("k", 1)]
        assert (await cache.get("ada", f"c{number}")).state["own"] == number


async def test_r2_creates_forks_and_touches_at_once_take_no_shared_value_back(
    caches: Sequence[SessionCache], urls: Urls
) -> None:
    one, two, *others, watching = caches
    parent = await one.create("ada", session_id="parent", state={"plan": [1, 2], "user:all": 0})
    await parent.namespace("skills").set("k", 1)
    writers, watcher = Writers(others), Watcher(watching)
    with start_worker(urls, "--flush-delay", "0.02") as worker:
        writing, looking = asyncio.ensure_future(writers.run()), asyncio.ensure_future(watcher.run())
        await at_once(one, two)
        writers.end()
        await writing
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await asyncio.to_thread(stop_worker, urls, worker)
    expected = writers.expected | {f"c{number}": number for number in range(CALLS)}
    assert (watcher.went_back, watcher.looks > ROUNDS) == ([], True)
    for _ in range(2):
        await watching.user_scope("ada").refresh()
        assert dict((await watching.get("ada", "parent")).state) == {"plan": [1, 2]} | {
            f"user:{key}": value for key, value in expected.items()
        }
        await check_sessions(watching)
        await drain(urls)
        assert dirty(urls.redis) == 0
        evict(urls.redis)
    assert stored_values(urls.database, user("ada")) == expected
    assert stored_values(urls.database, session("ada", "w0")) == {"step": writers.expected["w0"]}
