"""Sessions of ten to ten thousand keys: what a set of one key costs, and the flush of it.

A flush is from the reading of the dirt to the acknowledgement, by the worker's own code, on PostgreSQL: one row and one
head, whatever else the session holds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median

from sessioncache_worker import FlushWorker

from benchmarks.measuring import Spread, alternate, median_latency, ratios
from benchmarks.results import figure
from sessioncache import Session
from sessioncache.primitives.scopes import ScopeRef
from tests.helpers import Urls, connect, open_worker, session, upgrade
from tests.servers import PostgreSQLServer, RedisServer

SIZES = (10, 100, 1_000, 10_000)
CALLS = 200
FLUSHES = 20
"""Of one round, of which the median counts."""


class WrongRowsError(Exception):
    """A flush wrote other rows than the changed one."""


class Sized:
    """A session of so many keys, in both tiers."""

    def __init__(self, handle: Session, worker: FlushWorker) -> None:
        self._handle = handle
        self._worker = worker
        self._scope: ScopeRef = session(handle.user, handle.id)
        self._value = 0

    async def set(self, _: int = 0) -> object:
        """Set one key."""
        self._value += 1
        return await self._handle.set("key0", self._value)

    async def flush(self) -> float:
        """The median of flushes of one changed key, in microseconds."""
        taken = []
        for _ in range(FLUSHES):
            await self.set()
            began = time.perf_counter()
            rows = await self._worker.flusher.flush([(self._scope.bucket, self._scope.member)])
            taken.append((time.perf_counter() - began) * 1e6)
            if rows != 1:
                raise WrongRowsError(f"{rows} rows, not 1")
        return median(taken)


async def _open(stack: AsyncExitStack, urls: Urls, sizes: Sequence[int]) -> dict[int, Sized]:
    cache = await stack.enter_async_context(connect(urls))
    worker = await stack.enter_async_context(open_worker(urls))
    states = {size: {f"key{n}": "v" * 20 for n in range(size)} for size in sizes}
    opened = {size: Sized(await cache.create(f"u{size}", state=state), worker) for size, state in states.items()}
    await worker.flush_once()
    return opened


async def measure(rounds: int, sizes: Sequence[int] = SIZES) -> dict[str, object]:
    """The keys of the results."""
    redis, server = RedisServer().start(), PostgreSQLServer(fsync="on").start()
    found: dict[str, dict[str, list[float]]] = {}
    try:
        urls = Urls(redis.url, server.url(server.create_database()))
        await upgrade(urls.database)
        async with AsyncExitStack() as stack:
            opened = await _open(stack, urls, sizes)
            for operation, calls in _calls(opened).items():
                await alternate(calls, 1)
                found[operation] = await alternate(calls, rounds)
    finally:
        redis.destroy()
        server.destroy()
    return _results(found, sizes)


def _calls(opened: dict[int, Sized]) -> dict[str, dict[str, Callable[[], Awaitable[float]]]]:
    return {
        "flush": {str(size): one.flush for size, one in opened.items()},
        "set": {str(size): partial(median_latency, one.set, 0, CALLS) for size, one in opened.items()},
    }


def _results(found: dict[str, dict[str, list[float]]], sizes: Sequence[int]) -> dict[str, object]:
    results: dict[str, object] = {}
    curve = [{"keys": size} for size in sizes]
    for operation, by_size in found.items():
        for point, (size, values) in zip(curve, by_size.items(), strict=True):
            results[f"growth_{operation}_{size}_keys_us"] = Spread.of(values).middle
            point[f"{operation}_us"] = round(Spread.of(values).middle)
        ratio = ratios(by_size[str(sizes[-1])], by_size[str(sizes[0])])
        results |= figure(f"growth_ratio_{operation}_keys", ratio)
    return {**results, "growth_keys": curve}
