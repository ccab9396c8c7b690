"""The log of an outage: one line when a tier goes away, with the cause, and one when it is back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from sessioncache import DurableTierUnavailableError, HotTierUnavailableError, OutcomeUnknownError, Session
from sessioncache.primitives.outages import SQL
from tests.both_tiers.test_dead_letters import locked
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, open_worker, upgrade
from tests.waiting import wait_until_async


async def test_a_cache_tells_once_that_redis_is_away_and_once_that_it_is_back(
    start_redis: StartRedis, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis(appendonly="yes")
    urls = Urls(server.url, sqlite_url)
    await upgrade(urls.database)
    async with connect(urls, timeout=2) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        with caplog.at_level(logging.WARNING, "sessioncache.coordination.tiers"):
            server.stop()
            for _ in range(5):
                with suppress(HotTierUnavailableError, OutcomeUnknownError):
                    await made.get("a")
            server.start()
            await wait_until_async(lambda: is_there(made), 20, "Redis is back")
    told = [one.getMessage() for one in caplog.records if one.name == "sessioncache.coordination.tiers"]
    lines = [line for line in told if line.startswith("Redis")]
    assert [line.split(" after ")[0].split(":")[0] for line in lines] == [
        "Redis is away, and is tried again",
        "Redis is back",
    ]
    assert "nobody listens there" in lines[0] or "no answer" in lines[0]


async def is_there(made: Session) -> bool:
    """Whether a session can be read."""
    try:
        return bool(await made.get("a") == 1)
    except (HotTierUnavailableError, DurableTierUnavailableError):
        return False


async def test_a_worker_tells_once_that_sql_is_away_and_once_that_it_is_back_and_how_much_waits(
    valkey_url: str, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    urls = Urls(valkey_url, sqlite_url)
    await upgrade(urls.database)
    async with connect(urls) as cache, open_worker(urls, flush_delay=0.05, lease=0.2) as worker:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        task = asyncio.ensure_future(worker.run())
        await cache.flush(20)
        with caplog.at_level(logging.WARNING, "sessioncache_worker"):
            with locked(urls):
                await made.set("a", 2)
                await wait_until_async(lambda: SQL in worker._outages, 20, "the worker has seen it")
                assert worker._about()["away"].keys() == {SQL}
                await asyncio.sleep(1)  # it fails again and again
            await cache.flush(20)
            await wait_until_async(lambda: SQL not in worker._outages, 20, "the worker has seen the end")
        worker.stop()
        await task
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("sessioncache_worker")]
    assert len(lines) == 2, lines
    assert lines[0].startswith("the SQL database is away, and is tried again: ")
    assert "others hold it for too long" in lines[0]
    assert lines[1].startswith("the SQL database is back after ")
    assert lines[1].endswith(" scopes wait to be flushed")
