"""What takes long to come or go: it ends as long as bytes move, and nobody waits behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from sessioncache import HotTierUnavailableError, SessionCache
from sessioncache.hot import connection as lines
from sessioncache.hot.client import HotClient
from sessioncache.hot.connection import LARGE, LateError
from sessioncache.primitives.deadline import within
from tests.helpers import Urls, connect, upgrade
from tests.proxy import Proxy
from tests.servers import RedisServer
from tests.waiting import wait_until_async

TEXT = b"x" * (8 * LARGE)


@pytest.fixture
async def proxy(valkey: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of an empty server."""
    with valkey.client() as client:
        client.flushall()
    async with Proxy(valkey.socket) as opened:
        yield opened
    with valkey.client() as client:
        client.flushall()


@pytest.fixture
async def link(proxy: Proxy, valkey: RedisServer) -> AsyncIterator[HotClient]:
    """A link behind the proxy that is connected, to a server with a large value."""
    with valkey.client() as client:
        client.set("large", TEXT)
    opened = HotClient.from_url(f"redis://127.0.0.1:{proxy.port}/0")
    await opened.command(b"PING")
    yield opened
    await opened.aclose()


async def get(link: HotClient, seconds: float, *, is_large: bool = False) -> bytes:
    """The large value, within a deadline."""
    with within(seconds):
        (answer,) = await link.exchange([(b"GET", b"large")], {}, is_large=is_large)
    assert isinstance(answer, bytes)
    return answer


async def test_small_calls_do_not_wait_behind_a_large_answer(proxy: Proxy, link: HotClient) -> None:
    proxy.hold_answers_after(2 * LARGE)
    first, large = link._line, asyncio.ensure_future(get(link, 60))
    assert first is not None
    await wait_until_async(lambda: first.is_held_up, 20, "a large answer holds the connection up")
    assert await link.command(b"ECHO", "small") == b"small"
    assert not large.done()
    proxy.resume()
    assert await large == TEXT
    assert await get(link, 60, is_large=True) == TEXT
    assert link._large_line is first, "it serves what is large from now on"


async def test_what_is_known_to_be_large_goes_over_a_connection_of_its_own(proxy: Proxy, link: HotClient) -> None:
    first = link._line
    proxy.hold_answers_after(LARGE)
    large = asyncio.ensure_future(get(link, 60, is_large=True))
    await wait_until_async(lambda: link._large_line is not None and not link._large_line.idle, 20, "it is on its way")
    assert await link.command(b"ECHO", "small") == b"small"
    assert link._line is first
    proxy.resume()
    assert await large == TEXT


async def test_a_large_request_goes_over_a_connection_of_its_own(proxy: Proxy, link: HotClient) -> None:
    await link.command(b"SET", b"copy", TEXT)
    assert link._large_line is not None
    assert await link.command(b"GET", b"copy") == TEXT


async def test_an_answer_that_is_coming_is_waited_for(
    proxy: Proxy, link: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_PATIENCE", 60.0)
    rung = _count_rings(monkeypatch)
    proxy.hold_answers_after(2 * LARGE)
    large = asyncio.ensure_future(get(link, 0.5))
    await wait_until_async(lambda: rung, 20, "its time is over")
    assert not large.done()
    proxy.resume()
    assert await large == TEXT


async def test_what_waits_behind_a_large_answer_on_its_connection_is_waited_for(
    proxy: Proxy, link: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_PATIENCE", 60.0)
    proxy.hold_answers_after(2 * LARGE)
    calls = [asyncio.ensure_future(get(link, 0.5, is_large=True)) for _ in range(3)]

    def have_more_time() -> bool:
        waiting = link._large_line._waiting if link._large_line else ()
        return len(waiting) == 3 and all(one.until > asyncio.get_running_loop().time() + 10 for one in waiting)

    await wait_until_async(have_more_time, 20, "they are over their time and have got more")
    proxy.resume()
    assert await asyncio.gather(*calls) == [TEXT] * 3


async def test_an_answer_that_stopped_coming_is_given_up(
    proxy: Proxy, link: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_PATIENCE", 0.0)
    proxy.hold_answers_after(2 * LARGE)
    with pytest.raises(HotTierUnavailableError):
        await get(link, 0.2)
    assert await link.command(b"ECHO", "small") == b"small"


def _count_rings(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    rung: list[None] = []
    ring = lines.SharedConnection._ring

    def counted(line: lines.SharedConnection) -> None:
        ring(line)
        rung.append(None)

    monkeypatch.setattr(lines.SharedConnection, "_ring", counted)
    return rung


@pytest.mark.alone
async def test_a_state_that_takes_longer_than_a_call_is_read_beside_small_calls(proxy: Proxy, sqlite_url: str) -> None:
    await upgrade(sqlite_url)
    async with connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", sqlite_url), timeout=3) as cache:
        assert isinstance(cache, SessionCache)
        await cache.create("ada", session_id="large", state={f"k{n}": "x" * 900_000 for n in range(4)})
        small = await cache.create("ada", session_id="small", state={"n": 0})
        await small.refresh()  # what both sessions share is hot
        proxy.seconds_a_chunk = 0.02  # 6 Mbit/s: over 4 s
        large = asyncio.ensure_future(cache.get("ada", "large"))
        while not large.done():
            await small.increment("n")
        assert len((await large).state) == 4
        proxy.seconds_a_chunk = 0
        assert await small.get("n") >= 10


async def test_the_more_wait_the_longer_until_all_deadlines_are_looked_at_again(proxy: Proxy, link: HotClient) -> None:
    proxy.hold_answers()
    line, time_of = link._line, asyncio.get_running_loop().time
    assert line is not None
    waiting = [line.send([b"PING\r\n"], 1, time_of() + 1_000) for _ in range(4_000)]
    now = time_of()
    waiting.append(line.send([b"PING\r\n"], 1, now + 0.015))
    line._ring()
    assert line._alarm_at >= now + 0.02, "in 0.015 s there is a deadline"
    for exchange in waiting:
        exchange.answer.cancel()


class Clock:
    """An event loop's time and its next alarm, moved by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time()
        self.create_future = loop.create_future
        self.call_soon = loop.call_soon
        self.alarm: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, ring: Callable[[], None]) -> asyncio.TimerHandle:
        def due() -> None:
            self.now = max(self.now, at)
            ring()

        self.alarm = due
        return asyncio.get_running_loop().call_later(3_600, due)


async def test_time_outs_at_once_cost_no_more_than_their_number(proxy: Proxy, link: HotClient) -> None:
    few, many = await _looks_of_time_outs(proxy, link, 1_000), await _looks_of_time_outs(proxy, link, 8_000)
    assert many < 25 * few, "for eight times as many; squared, 64 times"


async def _looks_of_time_outs(proxy: Proxy, link: HotClient, calls: int) -> int:
    """How many deadlines are looked at until so many calls, one each 0.1 ms, have got no answer in time."""
    await link.command(b"PING")
    line = link._line
    assert line is not None
    proxy.hold_answers()
    clock = Clock(asyncio.get_running_loop())
    line._loop = cast("asyncio.AbstractEventLoop", clock)
    late = [line.send([b"PING\r\n"], 1, clock.now + 1 + n / 10_000) for n in range(calls)]
    looks = 0
    while (alarm := clock.alarm) is not None and not line.idle:
        clock.alarm = None
        looks += len(line._waiting) + len(line._leaving)
        alarm()
    assert all(isinstance(exchange.answer.exception(), LateError) for exchange in late)
    line._set_alarm(lines._NEVER)
    line.close()
    await wait_until_async(lambda: line.lost, 20, "it is closed")
    proxy.resume()
    return looks
