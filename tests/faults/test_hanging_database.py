"""A database that takes connections and answers nothing: no claim is held for it for ever."""

from __future__ import annotations

import asyncio

from sessioncache.outages import SQL
from tests.conftest import StartPostgreSQL, StartRedis
from tests.helpers import Urls, connect, open_worker, upgrade
from tests.waiting import stretched, wait_until_async


async def test_r9_a_worker_whose_database_hangs_holds_no_claims_for_ever(
    start_redis: StartRedis, start_postgresql: StartPostgreSQL
) -> None:
    server = start_postgresql()
    urls = Urls(start_redis().url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache, open_worker(urls, flush_delay=0.05, lease=1.0, sweep=0.5) as worker:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        task = asyncio.ensure_future(worker.run())
        await cache.flush(stretched(20))
        server.pause()
        try:
            await made.set("a", 2)
            await wait_until_async(lambda: len(worker.flusher.holdings), 20, "the write is claimed")
            await wait_until_async(lambda: SQL in worker._outages, 40, "the worker gives up")
            await wait_until_async(lambda: not len(worker.flusher.holdings), 20, "and holds nothing")
        finally:
            server.resume()
        await made.flush(stretched(20))
        worker.stop()
        await task
