"""SQL stopped under a steady write load (R18): hot sessions do not notice, memory is bounded, all is durable after."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.conftest import StartPostgreSQL, StartRedis
from tests.faults.load import Load
from tests.helpers import Urls, connect, dirty, raw, session, start_worker, stored_values, upgrade
from tests.waiting import wait_until_async

SESSIONS, KEYS = 10, 20
_DRAINED_WITHIN = 20.0
"""Seconds after SQL's return; the longest back-off of the worker is part of it."""


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.slow)])
async def test_sql_stopped_under_load_is_not_noticed_and_everything_is_durable_soon_after(
    start_redis: StartRedis, start_postgresql: StartPostgreSQL, seconds: float
) -> None:
    server = start_postgresql()
    urls = Urls(start_redis().url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache:
        load = await Load.on(cache, sessions=SESSIONS, keys=KEYS)
        with start_worker(urls, "--flush-delay", "0.2", "--lease", "5"):
            await cache.flush(60)
            async with load:
                await asyncio.to_thread(server.stop)
                early = await used_memory_after(urls, load, 1_000)
                await asyncio.sleep(seconds)
                assert dirty(urls.redis) == SESSIONS
                late, writes = used_memory(urls), load.written
                await asyncio.to_thread(server.start)
            await drained(urls)
    assert load.errors == []
    # The ten times as many writes of a long outage take no more memory than the first ones: they are the same keys.
    assert late - early < 100 * SESSIONS * KEYS, (early, late, writes)
    print(f"{writes} writes while SQL was away, the slowest took {load.slowest * 1000:.0f} ms")
    for number, one in enumerate(load.sessions):
        assert stored_values(urls.database, session(f"u{number}", "s")) == dict(one.state)


def used_memory(urls: Urls) -> int:
    """Bytes that Redis uses for all keys but the operation ids, which are those of the last minutes (R4)."""
    with raw(urls.redis) as client:
        keys = [key for key in client.scan_iter(count=1000) if b":ops:" not in key]
        return sum(client.memory_usage(key, samples=0) or 0 for key in keys)


async def used_memory_after(urls: Urls, load: Load, writes: int) -> int:
    """The memory in use once so many writes were made."""
    await wait_until_async(lambda: load.written > writes, 30, "writes go on while SQL is away")
    return used_memory(urls)


async def drained(urls: Urls) -> None:
    """Wait until nothing is dirty; prints the drain curve."""
    began, curve, last = time.monotonic(), [], -1

    def left() -> bool:
        nonlocal last
        now = dirty(urls.redis)
        if now != last:
            curve.append(f"{now} at {time.monotonic() - began:.1f} s")
            last = now
        return now == 0

    await wait_until_async(left, _DRAINED_WITHIN, "everything is durable after SQL's return")
    print("dirty scopes after SQL's return:", ", ".join(curve))
