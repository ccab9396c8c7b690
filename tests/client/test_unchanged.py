"""A handle that holds a scope reads it again only if it has changed, and never sees anything older than Redis has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessioncache import Session, SessionCache, SessionNotFoundError
from sessioncache.hot.client import Request
from sessioncache.hot.errors import unanswered
from sessioncache.hot.scripts import Script
from tests.helpers import Stall, Urls, connect, drain, evict, raw
from tests.proxy import Proxy

LARGE: dict[str, Any] = {f"key{n}": "v" * 3_000 for n in range(10)}
"""More than a handle reads without asking."""
SMALL_ANSWER = 1_000
"""Bytes; a reading of LARGE has thirty times as many."""


@pytest.fixture
async def proxy(request: pytest.FixtureRequest, urls: Urls) -> AsyncIterator[Proxy]:
    """A proxy in front of the server, which counts bytes."""
    server = request.getfixturevalue("valkey" if "sqlite" in urls.database else "redis_server")
    async with Proxy(server.socket) as opened:
        yield opened


@pytest.fixture
async def behind(proxy: Proxy, urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache behind the proxy."""
    async with connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", urls.database)) as opened:
        yield opened


async def received(proxy: Proxy, session: Session) -> int:
    """Bytes that a refresh brings."""
    before = proxy.answered
    await session.refresh()
    return proxy.answered - before


async def test_a_large_scope_is_not_sent_again_until_it_changed(
    proxy: Proxy, behind: SessionCache, cache: SessionCache
) -> None:
    other = await cache.create("ada", session_id="s1", state=LARGE)
    session = await behind.get("ada", "s1")
    assert await received(proxy, session) < SMALL_ANSWER
    assert dict(session.state) == LARGE
    await other.set("key3", "new")
    assert await received(proxy, session) > 10 * SMALL_ANSWER
    assert session.state["key3"] == "new"
    assert await received(proxy, session) < SMALL_ANSWER


async def test_only_the_scope_that_changed_is_sent(proxy: Proxy, behind: SessionCache, cache: SessionCache) -> None:
    state = LARGE | {"app:" + key: value for key, value in LARGE.items()}
    other = await cache.create("ada", session_id="s1", state=state)
    session = await behind.get("ada", "s1")
    await other.set("user:x", 1)
    assert await received(proxy, session) < SMALL_ANSWER
    assert dict(session.state) == state | {"user:x": 1}


async def test_a_write_of_ours_does_not_make_the_next_reading_a_large_one(
    proxy: Proxy, behind: SessionCache, cache: SessionCache
) -> None:
    other = await cache.create("ada", session_id="s1", state=LARGE)
    session = await behind.get("ada", "s1")
    await session.update({"key3": "mine", "more": 1}, delete=["key4"])
    assert await received(proxy, session) < SMALL_ANSWER
    expected = {key: value for key, value in LARGE.items() if key != "key4"} | {"key3": "mine", "more": 1}
    assert dict(session.state) == expected
    await other.set("key5", "theirs")
    await session.set("key6", "mine")
    assert await received(proxy, session) > 10 * SMALL_ANSWER, "another process wrote in between"
    assert dict(session.state) == expected | {"key5": "theirs", "key6": "mine"}


async def test_every_kind_of_change_by_others_is_seen(cache: SessionCache, urls: Urls) -> None:
    state = LARGE | {"n": 1, "list": [1], "user:u": 1, "app:a": 1, "temp:t": 1}
    session = await cache.create("ada", session_id="s1", state=state)
    await session.refresh()
    async with connect(urls) as others:
        other = await others.get("ada", "s1")
        expected = dict(state)

        async def check(**changes: object) -> None:
            await session.refresh()
            for key, value in changes.items():
                name = key.replace("__", ":")
                expected.pop(name) if value is None else expected.update({name: value})
            assert dict(session.state) == expected

        await check()
        await other.increment("n")
        await check(n=2)
        await other.append("list", 2)
        await check(list=[1, 2])
        await other.delete("key1")
        await check(key1=None)
        await other.set("temp:t", 2)
        await check(temp__t=2)
        await others.user_scope("ada").set("u", 2)
        await check(user__u=2)
        await others.app_scope().delete("a")
        await check(app__a=None)
        await other.touch(messages=1, first_message="Hello there")
        await check()
        assert (session.message_count, session.title) == (1, "Hello there")
        with raw(urls.redis) as client:
            client.delete(*client.scan_iter(match="*temp:*"))  # as if its time had come
        await check(temp__t=None)
        await other.clear()
        await session.refresh()
        assert dict(session.state) == {"user:u": 2}
        await others.delete("ada", "s1")
        await others.create("ada", session_id="s1", state=LARGE)
        with pytest.raises(SessionNotFoundError):
            await session.refresh()


async def test_a_scope_that_was_evicted_and_read_from_sql_is_the_same(cache: SessionCache, urls: Urls) -> None:
    session = await cache.create("ada", session_id="s1", state=LARGE)
    await session.refresh()
    await drain(urls)
    evict(urls.redis)
    await session.refresh()
    assert dict(session.state) == LARGE
    async with connect(urls) as others:
        await (await others.get("ada", "s1")).set("key1", "new")
    await session.refresh()
    assert dict(session.state) == LARGE | {"key1": "new"}


@pytest.mark.parametrize("seed", range(4))
async def test_handles_that_write_and_read_side_by_side_all_end_with_what_redis_has(urls: Urls, seed: int) -> None:
    chance = random.Random(seed)
    async with connect(urls) as first, connect(urls) as second:
        await first.create("ada", session_id="s1", state=LARGE)
        handles = [await cache.get("ada", "s1") for cache in (first, first, second)]

        async def act(handle: Session) -> None:
            key = chance.choice(["", "user:", "app:", "temp:"]) + f"key{chance.randrange(4)}"
            kind = chance.randrange(6)
            if kind == 0:
                await handle.delete(key)
            elif kind == 1:
                await handle.get(key)
            elif kind == 2:
                await handle.refresh()
            else:
                await handle.set(key, chance.randrange(1_000))

        for _ in range(25):
            await asyncio.gather(*(act(chance.choice(handles)) for _ in range(chance.randrange(1, 8))))
            await asyncio.gather(*(handle.refresh() for handle in handles))
            expected = dict((await second.get("ada", "s1")).state)
            assert [dict(handle.state) for handle in handles] == [expected] * 3


async def test_a_reading_of_the_whole_never_mixes_two_moments(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await cache.create("ada", session_id="s1", state={"n": 1, "user:n": 1, "app:n": 1})
    other = await cache.get("ada", "s1")
    link, ask = session._tiers.hot.link, session._tiers.hot.link.ask

    async def interrupted(request: Request) -> list[Any]:
        """As if somebody wrote between the commands of one request."""
        before = await ask(request)
        await other.update({"n": 2, "user:n": 2, "app:n": 2})
        return before[:2] + (await ask(request))[2:]

    monkeypatch.setattr(link, "ask", interrupted)
    await session.refresh()
    assert dict(session.state) == {"n": 2, "user:n": 2, "app:n": 2}


async def test_a_key_that_others_deleted_while_a_reading_waited_is_gone(cache: SessionCache, urls: Urls) -> None:
    session = await cache.create("ada", session_id="s1", state=LARGE)
    async with connect(urls) as others:
        stall = Stall(cache._tiers.hot, "look")
        reading = asyncio.ensure_future(session.refresh())
        await stall.reached.wait()
        await session.set("k", "mine")
        await (await others.get("ada", "s1")).delete("k")
        stall.release.set()
        await reading
    assert dict(session.state) == LARGE
    await session.refresh()
    assert dict(session.state) == LARGE


async def test_a_write_whose_answer_came_late_does_not_hide_what_was_read_meanwhile(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await cache.create("ada", session_id="s1")
    other = await cache.get("ada", "s1")
    call, lost = cache._tiers.link.call, asyncio.Event()

    async def lossy(script: Script, keys: Any, args: Any) -> Any:
        reply = await call(script, keys, args)
        if script.name == "write" and not lost.is_set():
            lost.set()
            await other.set("k", "theirs")
            await session.refresh()
            raise unanswered("lost")
        return reply

    monkeypatch.setattr(cache._tiers.link, "call", lossy)
    await session.set("k", "mine")
    assert dict(session.state) == {"k": "theirs"}
