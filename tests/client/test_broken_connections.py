"""Connections that break in the middle of a call: it is repeated in time, and a write is applied once (R4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from sessioncache import HotTierUnavailableError, OutcomeUnknownError, Session, SessionCache, SessionPage
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, raw, upgrade
from tests.proxy import Proxy
from tests.waiting import wait_until_async

pytestmark = pytest.mark.alone


@pytest.fixture(params=["valkey", "redis_server"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    """A proxy in front of each engine."""
    server = request.getfixturevalue(request.param)
    with server.client() as client:
        client.flushall()
    async with Proxy(server.socket) as opened:
        yield opened


@pytest.fixture
async def cache(proxy: Proxy, sqlite_url: str) -> AsyncIterator[SessionCache]:
    """A cache behind the proxy."""
    await upgrade(sqlite_url)
    urls = Urls(f"redis://127.0.0.1:{proxy.port}/0", sqlite_url)
    async with connect(urls, timeout=2) as opened:
        yield opened


@pytest.fixture
async def made(cache: SessionCache) -> Session:
    """A session with a counter; Redis knows the scripts."""
    session = await cache.create("ada", session_id="s1", state={"n": 0})
    await session.increment("n", 0)
    await cache.create("ada", session_id="gone")
    await cache.delete("ada", "gone")
    return session


async def cut_off(proxy: Proxy, call: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    """A call whose connection is cut after the server has answered and before the answer comes through."""
    proxy.hold_answers()
    before = proxy.answered
    running = asyncio.ensure_future(call)
    await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")
    proxy.cut()
    proxy.resume()
    return running


async def test_a_write_whose_answer_was_cut_off_is_repeated_and_applied_once(proxy: Proxy, made: Session) -> None:
    for expected in range(1, 6):
        assert await (await cut_off(proxy, made.increment("n"))) == expected
        assert await made.get("n") == expected


async def test_a_write_that_is_not_answered_in_time_is_applied_once(proxy: Proxy, made: Session) -> None:
    proxy.hold_answers()
    began = time.monotonic()
    with pytest.raises(OutcomeUnknownError):
        await made.increment("n")
    assert 1.5 < time.monotonic() - began < 3
    proxy.resume()
    assert await made.get("n") == 1


async def test_a_create_and_a_delete_whose_answer_was_cut_off_succeed_once(
    proxy: Proxy, cache: SessionCache, made: Session
) -> None:
    await made.get("n")  # there is a connection, so that what is cut off is the call itself
    created = await (await cut_off(proxy, cache.create("ada", session_id="s2")))
    assert isinstance(created, Session)
    assert await (await cut_off(proxy, cache.delete("ada", "s2"))) is True
    assert await cache.delete("ada", "s2") is False


async def test_a_read_whose_connection_was_cut_is_repeated(proxy: Proxy, cache: SessionCache, made: Session) -> None:
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: made.get("n"),
        lambda: cache.get("ada", "s1"),
        lambda: cache.list("ada"),
        made.refresh,
    ]
    read, found, page, refreshed = [await (await cut_off(proxy, call())) for call in calls]
    assert (read, refreshed) == (await made.get("n"), None)
    assert isinstance(found, Session)
    assert isinstance(page, SessionPage)
    assert [one.id for one in page.items] == ["s1"]


async def test_connections_cut_while_idle_are_not_noticed(proxy: Proxy, made: Session) -> None:
    for expected in range(1, 4):
        await asyncio.gather(*(made.get("n") for _ in range(10)))
        proxy.cut()
        await asyncio.sleep(1.1)  # after a second of idleness a connection is looked at before its use
        assert await made.increment("n") == expected


async def test_a_write_that_could_not_be_sent_is_repeated_until_redis_is_back(proxy: Proxy, made: Session) -> None:
    await proxy.refuse()
    proxy.cut()
    await asyncio.sleep(1.1)
    writing = asyncio.ensure_future(made.increment("n"))
    await asyncio.sleep(0.3)
    assert not writing.done()
    await proxy.accept()
    assert await writing == 1
    assert await made.get("n") == 1


async def test_redis_away_is_told_within_the_time_out(proxy: Proxy, cache: SessionCache, made: Session) -> None:
    await proxy.refuse()
    proxy.cut()
    await asyncio.sleep(1.1)
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: made.get("n"),
        lambda: made.set("n", 1),
        lambda: cache.list(),
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(HotTierUnavailableError):
            await call()
        assert time.monotonic() - began < 3
    await proxy.accept()
    assert await made.get("n") == 0


async def test_a_write_under_fire_is_applied_exactly_as_often_as_told(proxy: Proxy, made: Session) -> None:
    async def fire() -> None:
        while True:
            await asyncio.sleep(0.005)
            proxy.cut()

    firing = asyncio.ensure_future(fire())
    results = [await made.increment("n") for _ in range(300)]
    firing.cancel()
    assert results == list(range(1, 301))


async def test_a_server_that_comes_back_empty_handed_is_used_again(start_redis: StartRedis, sqlite_url: str) -> None:
    await upgrade(sqlite_url)
    server = start_redis("redis")
    async with connect(Urls(server.url, sqlite_url)) as cache:
        await cache.create("ada", session_id="s1")
        server.restart()
        assert (await cache.list("ada")).items == []
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        assert await made.get("a") == 1
    with raw(server.url) as client:
        assert client.dbsize() > 0


async def test_closing_amid_a_call_leaves_no_connection_open(proxy: Proxy, cache: SessionCache, made: Session) -> None:
    proxy.hold_answers()
    before = proxy.answered
    running = asyncio.ensure_future(made.get("n"))
    await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")
    await cache.aclose()
    proxy.resume()
    assert await running == 0
    await wait_until_async(lambda: not proxy.connected, 5, "the connection is closed")
