"""What a call costs in large sessions over what it costs in small ones.

A large session to read has 1,000 keys of 1,000 bytes, a small one 10 keys of 100; a large session to write has 10,000
keys of 100 bytes.  The caches lie over PostgreSQL; a flush is that of one changed key, from the reading of the dirt to
the acknowledgement.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median

from sessioncache_worker import FlushWorker

from benchmarks.measuring import Spread, alternate, median_latency, ratios, table
from benchmarks.part import Outcome, Part, Say
from benchmarks.results import figure
from benchmarks.servers import postgresql, redis_server
from sessioncache import Session, SessionCache
from sessioncache.primitives.scopes import session_ref
from tests.helpers import BUCKETS, Urls, connect, fetch, open_worker, upgrade

SMALL = (10, 100)
LARGE_READ = (1_000, 1_000)
LARGE_WRITE = (10_000, 100)
"""Keys, and bytes of each value as JSON."""
CALLS = 60
"""Calls of a stretch, of which the median counts."""
FLUSHES = 20
APP = "sizes"
ROUNDS = 11
_KEYS_AT_ONCE = 1_000

Rounds = dict[str, list[float]]
_numbers = count()


@dataclass
class Sizes:
    """The sessions, and other handles of theirs to change them by."""

    urls: Urls
    worker: FlushWorker
    cache: SessionCache
    sessions: dict[str, Session]
    others: dict[str, Session]

    async def refresh(self, name: str) -> float:
        """Microseconds of a merged get that finds nothing changed."""
        return await median_latency(lambda _: self.sessions[name].refresh(), 0, CALLS)

    async def get(self, name: str) -> float:
        """Milliseconds of a get by a cache that holds nothing of it yet, all values decoded."""
        user, session_id = self.sessions[name].user, self.sessions[name].id

        async def call() -> object:
            return dict((await self.cache.get(user, session_id)).state)

        return await _median_ms(call, _nothing, CALLS // 4)

    async def get_changed(self, name: str) -> float:
        """Milliseconds of a merged get after somebody else has changed a key, all values decoded."""

        async def call() -> object:
            await self.sessions[name].refresh()
            return dict(self.sessions[name].state)

        return await _median_ms(call, partial(self._change, name), CALLS // 4)

    async def set(self, name: str) -> float:
        """Microseconds of a set."""
        session = self.sessions[name]
        return await median_latency(lambda _: session.set("key3", _text()), 0, CALLS)

    async def flush(self, name: str) -> float:
        """Milliseconds of the flush of one changed key."""
        place = session_ref(BUCKETS, "", APP, name, name)

        async def call() -> object:
            return await self.worker.flusher.flush([(place.bucket, place.member)])

        return await _median_ms(call, partial(self._change, name), FLUSHES)

    async def rows_written(self, name: str) -> int:
        """The rows that the database has written for one changed key."""
        await self.worker.flush_once()
        ((before,),) = fetch(self.urls.database, "SELECT txid_current()")
        await self._change(name)
        await self.worker.flush_once()
        written = 0
        for one in ("state", "session", "user_scope", "app_scope"):
            query = f"SELECT count(*) FROM sessioncache_{one} WHERE xmin::text::bigint > ?"
            written += int(fetch(self.urls.database, query, before)[0][0])
        return written

    async def _change(self, name: str) -> None:
        await self.others[name].set("key5", _text())


def _text() -> str:
    """100 bytes as JSON, another one each time."""
    return f"{next(_numbers):098}"


async def _nothing() -> None:
    pass


async def _median_ms(call: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[None]], calls: int) -> float:
    taken: list[float] = []
    for _ in range(calls):
        await before()
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return median(taken) * 1_000


@asynccontextmanager
async def opened() -> AsyncIterator[Sizes]:
    """Fill the sessions, flushed."""
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server())
        server = stack.enter_context(postgresql())
        urls = Urls(redis.url, server.url(server.create_database()))
        await upgrade(urls.database)
        worker = await stack.enter_async_context(open_worker(urls))
        cache, other = [await stack.enter_async_context(connect(urls, app=APP, timeout=30)) for _ in range(2)]
        sessions, others = {}, {}
        for name, (keys, size) in {"small": SMALL, "large": LARGE_READ, "huge": LARGE_WRITE}.items():
            await _fill(other, name, keys, size)
            sessions[name], others[name] = await cache.get(name, name), await other.get(name, name)
        await worker.flush_once()
        yield Sizes(urls, worker, cache, sessions, others)


async def _fill(cache: SessionCache, name: str, keys: int, size: int) -> None:
    session = await cache.create(name, session_id=name)
    for first in range(0, keys, _KEYS_AT_ONCE):
        numbers = range(first, min(first + _KEYS_AT_ONCE, keys))
        await session.update({f"key{n}": f"{n:0{size - 2}}" for n in numbers})


async def run(rounds: int, say: Say) -> Outcome:
    """Measure everything."""
    outcome = Outcome()
    rows: list[tuple[str, ...]] = []
    say("sizes: filling sessions")
    async with opened() as sizes:
        for key, large, unit, call in (
            ("get", "large", "µs", sizes.refresh),
            ("cache_get", "large", "ms", sizes.get),
            ("get_changed", "large", "ms", sizes.get_changed),
            ("set", "huge", "µs", sizes.set),
            ("flush", "huge", "ms", sizes.flush),
        ):
            say(f"sizes: {key}")
            calls = {name: partial(call, name) for name in ("small", large)}
            await alternate(calls, 1)
            found = await alternate(calls, rounds)
            small, big = found["small"], found[large]
            outcome.figures |= _figures(key, unit, small, big)
            rows.append((f"{key}, {unit}", *(Spread.of(v).shown() for v in (small, big)), ratios(big, small).shown()))
        outcome.figures["flush_rows_written"] = await sizes.rows_written("huge")
    outcome.tables.append(table(_TITLE, ("p50", "10 keys", "large", "large ÷ small"), rows))
    return outcome


def _figures(key: str, unit: str, small: Sequence[float], large: Sequence[float]) -> dict[str, object]:
    unit = {"µs": "us"}.get(unit, unit)
    absolute = {"get_changed": "get_changed_ms"}.get(key, f"{key}_large_{unit}")
    return {
        **figure(f"{key}_large_over_small", ratios(large, small)),
        **figure(absolute, Spread.of(large)),
        **figure(f"{key}_small_{unit}", Spread.of(small)),
    }


_TITLE = "Calls on a large session (1,000 keys, 1 MB, to read; 10,000 keys to write) and on one of 10 keys"
_KEYS = (
    *(f"{key}_large_over_small" for key in ("get", "cache_get", "get_changed", "set", "flush")),
    *("get_changed_ms", "cache_get_large_ms", "flush_rows_written"),
)
PART = Part("sizes", _KEYS, run, ROUNDS)
