"""A database that takes connections and answers nothing: no claim is held for it for ever."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import event

from sessioncache import FlushTimeoutError, Session
from sessioncache.durable import tier as durable
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.primitives.outages import SQL
from tests.conftest import StartPostgreSQL, StartRedis
from tests.durable_helpers import dirt, open_tier, put, session, values_of
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
            await wait_until_async(lambda: len(worker.flusher.held_claims), 20, "the write is claimed")
            await wait_until_async(lambda: SQL in worker._outages, 40, "the worker gives up")
            await wait_until_async(lambda: not len(worker.flusher.held_claims), 20, "and holds nothing")
        finally:
            server.resume()
        await made.flush(stretched(20))
        worker.stop()
        await task


@pytest.mark.parametrize("before", ["before_cursor_execute", "commit"])
async def test_r10_a_flush_tells_soon_that_the_database_does_not_answer(
    start_postgresql: StartPostgreSQL, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setattr(durable, "_PATIENCE", 600)
    server = start_postgresql()
    async with open_tier(server.url(), lock_timeout=1.0) as tier:
        await put(tier, dirt(session(), 1, {"a": b"1"}))
        clock = await tier.clock()
        engine = tier.engine.sync_engine

        def pause(*_: object) -> None:
            server.pause()

        event.listen(engine, before, pause)
        try:
            async with asyncio.timeout(stretched(6)):
                with pytest.raises(DurableTierUnavailableError, match="did not answer in time"):
                    await tier.flush([dirt(session(), 2, {"a": b"2"})], read_after=clock)
        finally:
            event.remove(engine, before, pause)
            server.resume()
        await put(tier, dirt(session(), 3, {"a": b"3"}))
        assert await values_of(tier, session()) == {"a": b"3"}


async def test_r10_a_caller_and_the_log_are_told_that_the_database_hangs(
    start_redis: StartRedis,
    start_postgresql: StartPostgreSQL,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(durable, "_PATIENCE", 600)
    server = start_postgresql()
    urls = Urls(start_redis().url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache, open_worker(urls, flush_delay=0.05, lease=2.0) as worker:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        task = asyncio.ensure_future(worker.run())
        await cache.flush(stretched(20))
        server.pause()
        try:
            await made.set("a", 2)
            await wait_until_async(lambda: SQL in worker._outages, 30, "the worker notices")
            assert "the SQL database is away" in caplog.text
            await wait_until_async(lambda: _is_told(made), 40, "who flushes is told")
        finally:
            server.resume()
        await made.flush(stretched(20))
        worker.stop()
        await task


async def _is_told(handle: Session) -> bool:
    """Whether who flushes hears of the database, by the worker's heartbeat."""
    with pytest.raises(FlushTimeoutError) as error:
        await handle.flush(0.1)
    return ": the SQL database" in str(error.value) and "did not answer in time" in str(error.value)
