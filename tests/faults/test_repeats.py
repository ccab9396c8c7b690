"""A write whose answer was lost is applied once or its outcome is told as unknown, whatever the repeat meets (R4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessioncache import OutcomeUnknownError, Session, SessionCache
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, drain, raw, session, stored_values, upgrade
from tests.proxy import Proxy
from tests.servers import RedisServer
from tests.waiting import wait_until_async

CONFIG: dict[str, Any] = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, start_redis: StartRedis) -> RedisServer:
    """A server that keeps what it acknowledged."""
    return start_redis(request.param, **CONFIG)


@asynccontextmanager
async def unanswered_append(server: RedisServer, database: str) -> AsyncIterator[tuple[Any, Proxy]]:
    """An append that Redis has applied and whose answer is held back, and the proxy that holds it."""
    await upgrade(database)
    async with Proxy(server.socket) as proxy:
        urls = Urls(f"redis://127.0.0.1:{proxy.port}/0", database)
        async with connect(urls, timeout=10) as cache, connect(Urls(server.url, database)) as watcher:
            made = await cache.create("ada", session_id="s1", state={"list": []})
            await made.append("list", 1)  # Redis knows the script, and the back-pressure has just been looked at
            proxy.hold_answers()
            running = asyncio.ensure_future(made.append("list", 2))
            await wait_until_async(lambda: applied(watcher), 5, "Redis has applied the append")
            yield running, proxy


async def applied(watcher: SessionCache) -> bool:
    """Whether the append is there."""
    found: Session = await watcher.get("ada", "s1")
    return len(found.state["list"]) == 2


async def once(server: RedisServer, database: str) -> None:
    """The append is there once, in both tiers."""
    urls = Urls(server.url, database)
    async with connect(urls) as cache:
        assert (await cache.get("ada", "s1")).state["list"] == [1, 2]
    await drain(urls)
    assert stored_values(database, session("ada", "s1")) == {"list": [1, 2]}


async def test_a_repeat_that_meets_a_restarted_redis_is_not_applied_again(server: RedisServer, sqlite_url: str) -> None:
    async with unanswered_append(server, sqlite_url) as (running, proxy):
        await asyncio.to_thread(server.kill)
        proxy.cut()
        await asyncio.to_thread(server.start)
        proxy.resume()
        with pytest.raises(OutcomeUnknownError):
            await running
    await once(server, sqlite_url)


async def test_a_repeat_that_meets_full_memory_is_not_told_as_refused(server: RedisServer, sqlite_url: str) -> None:
    async with unanswered_append(server, sqlite_url) as (running, proxy):
        with raw(server.url) as client:
            client.config_set("maxmemory", 1)
            proxy.cut()
            proxy.resume()
            with pytest.raises(OutcomeUnknownError):
                await running
            client.config_set("maxmemory", 0)
    await once(server, sqlite_url)


async def test_a_repeat_on_another_connection_is_answered_as_the_first_try(
    server: RedisServer, sqlite_url: str
) -> None:
    async with unanswered_append(server, sqlite_url) as (running, proxy):
        proxy.cut()
        proxy.resume()
        assert await running == 2
    await once(server, sqlite_url)
