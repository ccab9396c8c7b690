"""Two worker processes beside one on the same backlog: rows a second from the first claim to the last acknowledgement.

A part of ``benchmarks/flush.py``.  Each worker is a process of its own that has flushed before and waits for a word.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from sessioncache_worker import FlushWorker
from sessioncache_worker.cli import spare_collector

from sessioncache.durable.tier import DurableTier
from sessioncache.hot.client import HotClient
from sessioncache.settings import WorkerSettings

_LOOK = 0.005
"""Seconds between two looks at whether all is flushed."""
_LONGEST = 60.0
"""Seconds that a flush may take."""

Workers = Sequence[asyncio.subprocess.Process]


@asynccontextmanager
async def workers(number: int, redis_url: str, database_url: str, prefix: str) -> AsyncIterator[Workers]:
    """Worker processes that are ready."""
    command = (sys.executable, "-m", __name__, redis_url, database_url, prefix)
    pipe = asyncio.subprocess.PIPE
    found = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(number)]
    try:
        for one in found:
            await _answer(one)
        yield found
    finally:
        for one in found:
            one.kill()
            await one.wait()


async def rate(chosen: Workers, rows: int, dirty: Callable[[], Awaitable[int]]) -> float:
    """Rows a second of some of the workers, until nothing is dirty."""
    began = time.perf_counter()
    for one in chosen:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
    async with asyncio.timeout(_LONGEST):
        while await dirty():  # noqa: ASYNC110 - only Redis knows
            await asyncio.sleep(_LOOK)
        taken = time.perf_counter() - began
        for one in chosen:
            await _answer(one)
    return rows / taken


async def _answer(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdout is not None
    async with asyncio.timeout(_LONGEST):
        if not await worker.stdout.readline():
            raise RuntimeError("a worker ended")


async def _work(redis_url: str, database_url: str, prefix: str) -> None:
    worker = FlushWorker.over(
        HotClient.from_url(redis_url), DurableTier.connect(database_url), WorkerSettings(prefix=prefix)
    )
    await worker.flush_once()
    spare_collector()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        await worker.flush_once()
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_work(*sys.argv[1:]))
