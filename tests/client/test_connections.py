"""Calls share one connection and its round trips: each has its own answer, fails alone, and ends alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from sessioncache import Session, SessionCache, SessionNotFoundError, TypeMismatchError
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.connection import SharedConnection
from sessioncache.hot.errors import is_unanswered
from sessioncache.hot.layout import Layout
from sessioncache.hot.scripts import load_script
from sessioncache.primitives.deadline import within
from tests.helpers import Urls, connect, upgrade
from tests.proxy import Proxy
from tests.servers import RedisServer
from tests.waiting import wait_until_async


@pytest.fixture
async def proxy(valkey: RedisServer) -> AsyncIterator[Proxy]:
    """A proxy in front of an empty server."""
    with valkey.client() as client:
        client.flushall()
    async with Proxy(valkey.socket) as opened:
        yield opened


@pytest.fixture
async def link(proxy: Proxy) -> AsyncIterator[HotClient]:
    """A link behind the proxy that is connected."""
    opened = HotClient.from_url(f"redis://127.0.0.1:{proxy.port}/0")
    await opened.command(b"PING")
    yield opened
    await opened.aclose()


@pytest.fixture
async def cache(proxy: Proxy, sqlite_url: str) -> AsyncIterator[SessionCache]:
    """A cache behind the proxy."""
    await upgrade(sqlite_url)
    async with connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", sqlite_url)) as opened:
        yield opened


@pytest.fixture
async def sessions(cache: SessionCache) -> list[Session]:
    """Ten sessions, each of which knows its number."""
    return [await cache.create("ada", session_id=f"s{n}", state={"own": n, "list": []}) for n in range(10)]


class Departures:
    """How many exchanges left together, each time that something left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        leave = SharedConnection._leave

        def counted(line: SharedConnection) -> None:
            if line._leaving:
                self.sizes.append(len(line._leaving))
            leave(line)

        monkeypatch.setattr(SharedConnection, "_leave", counted)


async def test_calls_of_one_turn_of_the_loop_leave_together(
    sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    await sessions[0].get("own")  # the connection has not been idle
    departures = Departures(monkeypatch)
    assert await asyncio.gather(*(session.get("own") for session in sessions)) == list(range(10))
    assert departures.sizes == [1, 9], "the first one found nobody to wait for"


async def test_many_calls_do_not_wait_until_the_last_one_was_made(
    link: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    departures = Departures(monkeypatch)
    told = await asyncio.gather(*(link.command(b"ECHO", str(n)) for n in range(40)))
    assert told == [b"%d" % n for n in range(40)]
    assert departures.sizes == [1, 16, 16, 7]


async def test_all_calls_wait_where_the_end_of_the_connection_may_be_unnoticed(
    link: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    departures, line = Departures(monkeypatch), link._line
    assert line is not None
    line._heard -= 60
    await asyncio.gather(*(link.command(b"ECHO", str(n)) for n in range(40)))
    assert departures.sizes == [40]


async def test_a_lone_call_leaves_at_once(sessions: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    await sessions[0].get("own")  # the connection has not been idle
    departures = Departures(monkeypatch)
    call = asyncio.ensure_future(sessions[0].get("own"))
    await asyncio.sleep(0)  # the first step of the task, and no more
    assert departures.sizes == [1]
    assert await call == 0


async def test_all_calls_of_a_process_use_one_connection(sessions: list[Session], valkey: RedisServer) -> None:
    with valkey.client() as client:
        before = len(client.client_list())
        await asyncio.gather(*(session.set("own", n) for session in sessions for n in range(50)))
        assert len(client.client_list()) == before


async def test_a_call_that_fails_fails_alone(cache: SessionCache, sessions: list[Session]) -> None:
    await cache.delete("ada", "s3")
    calls = [session.set("own", "new") for session in sessions[:5]]
    results = await asyncio.gather(*calls, sessions[5].append("own", 1), sessions[6].get("own"), return_exceptions=True)
    assert [type(result) for result in results] == [int, int, int, SessionNotFoundError, int, TypeMismatchError, int]
    assert await asyncio.gather(*(session.get("own") for session in sessions[:3])) == ["new"] * 3


async def test_an_answer_that_nobody_waits_for_any_more_reaches_nobody(proxy: Proxy, sessions: list[Session]) -> None:
    proxy.hold_answers()
    before = proxy.answered
    calls = [asyncio.ensure_future(session.get("own")) for session in sessions]
    await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")
    for call in calls[::2]:
        call.cancel()
    await asyncio.wait(calls[::2])
    later = [asyncio.ensure_future(session.get("own")) for session in sessions[::2]]
    proxy.resume()
    assert await asyncio.gather(*calls[1::2]) == [1, 3, 5, 7, 9]
    assert await asyncio.gather(*later) == [0, 2, 4, 6, 8]


async def test_a_call_that_is_cancelled_before_it_left_is_not_sent(proxy: Proxy, link: HotClient) -> None:
    proxy.hold_answers()
    first = asyncio.ensure_future(link.command(b"ECHO", "first"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(link.command(b"SET", "key", "never"))
    await asyncio.sleep(0)  # it is with those that leave at the end of this turn
    second.cancel()
    await asyncio.wait([second])
    proxy.resume()
    assert await first == b"first"
    assert await link.command(b"GET", "key") is None


async def test_each_call_has_a_time_of_its_own_and_the_late_connection_serves_who_waits(
    proxy: Proxy, link: HotClient
) -> None:
    proxy.hold_answers()

    async def ask(seconds: float, text: str) -> bytes:
        with within(seconds):
            answer: bytes = await link.command(b"ECHO", text)
            return answer

    patient = asyncio.ensure_future(ask(20, "patient"))
    with pytest.raises(HotTierUnavailableError, match="no answer"):
        await ask(0.1, "hasty")
    assert not patient.done()
    proxy.resume()
    assert await patient == b"patient"
    assert await ask(5, "next") == b"next"


async def test_after_a_time_out_the_next_call_has_another_connection(proxy: Proxy, link: HotClient) -> None:
    line = link._line
    assert line is not None
    proxy.hold_answers()
    with within(0.1), pytest.raises(HotTierUnavailableError, match="no answer"):
        await link.command(b"ECHO", "late")
    assert not line.usable
    assert line._transport.is_closing(), "nobody waits for it any more"
    proxy.resume()
    assert await link.command(b"ECHO", "next") == b"next"
    assert link._line is not line


async def test_a_cut_connection_ends_every_call_that_was_sent_over_it(proxy: Proxy, link: HotClient) -> None:
    proxy.hold_answers()
    before = proxy.answered
    calls = [asyncio.ensure_future(link.command(b"ECHO", str(n))) for n in range(20)]
    await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")
    proxy.cut()
    proxy.resume()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {(type(result), is_unanswered(result)) for result in results} == {(HotTierUnavailableError, True)}
    assert await link.command(b"ECHO", "next") == b"next"


async def test_replies_of_one_megabyte_and_small_ones_come_in_their_order(link: HotClient) -> None:
    texts = ["x" * (1_000_000 if n % 3 == 0 else n) for n in range(12)]
    answers = await asyncio.gather(*(link.command(b"ECHO", text) for text in texts))
    assert answers == [text.encode() for text in texts]


async def test_a_closed_link_lets_calls_under_way_end_and_takes_no_more(proxy: Proxy, link: HotClient) -> None:
    proxy.hold_answers()
    before = proxy.answered
    call = asyncio.ensure_future(link.command(b"ECHO", "last"))
    await wait_until_async(lambda: proxy.answered > before, 5, "the server answers")
    await link.aclose()
    proxy.resume()
    assert await call == b"last"
    await wait_until_async(lambda: not proxy.connected, 5, "the connection is closed")


async def test_a_call_that_met_a_closing_connection_was_not_sent(link: HotClient) -> None:
    line = link._line
    assert line is not None
    exchange = asyncio.ensure_future(link.command(b"ECHO", "first"))
    waiting = asyncio.ensure_future(link.command(b"ECHO", "second"))
    await asyncio.sleep(0)
    line._transport.abort()  # before those leave that came after the first
    assert await waiting == b"second", "over another connection"
    with pytest.raises(HotTierUnavailableError, match="no answer"):
        await exchange


async def test_an_exchange_of_no_commands_is_none(link: HotClient) -> None:
    assert await link.exchange([], {}) == []
    assert await link.command(b"ECHO", "next") == b"next"


async def test_scripts_that_redis_forgot_are_sent_once_for_all_calls(
    link: HotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, script = Layout("t", 4), load_script("claim")
    await link.command(b"SCRIPT", b"FLUSH")
    departures = Departures(monkeypatch)
    calls = [([layout.control(bucket)], (b"w", 1, 1, 1, b"0")) for bucket in range(4)]
    assert await link.call_many(script, calls) == [[b"register", 1]] * 4
    assert departures.sizes == [1, 1], "once in vain, and once with the text"


async def test_r4_scripts_that_are_forgotten_between_two_calls_of_one_exchange_are_told_again(
    link: HotClient, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, script = Layout("sessioncache", 4), load_script("heartbeat")
    calls = [([layout.control(0)], (f"w{number}".encode(), b"alive", b"{}")) for number in range(8)]
    exchange, rounds = link._exchange, 0

    async def forgetting(commands: Sequence[Sequence[Argument]], **named: Any) -> list[Reply]:
        nonlocal rounds
        rounds += 1
        if rounds > 2:
            return await exchange(commands, **named)
        replies = await exchange(commands[:1], **named)
        with valkey.client() as client:
            client.script_flush()
        return replies + await exchange(commands[1:], **named)

    monkeypatch.setattr(link, "_exchange", forgetting)
    with valkey.client() as client:
        client.script_flush()
    assert await link.call_many(script, calls) == [[b"ok"]] * 8
    await link.command(b"DEL", layout.control(0))
