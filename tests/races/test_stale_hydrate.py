"""A reader that stalls between SQL and Redis never brings an old value back (R13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sessioncache.hot.tier
import sessioncache.hot.tokens
from sessioncache import SessionCache, SessionExistsError
from sessioncache.hot.tokens import TOKEN_LIFETIME_MS
from tests.helpers import Agent, Stall, Urls, connect, drain, evict, raw, scope_key, session, stored_values, user
from tests.waiting import wait_until_async


@pytest.fixture(autouse=True)
def short_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stalled reader of this process is overtaken soon by other processes."""
    monkeypatch.setattr(sessioncache.hot.tier, "TOKEN_LIFETIME_MS", 100)
    monkeypatch.setattr(sessioncache.hot.tokens, "_EVERY", 3_600)  # as in a process that stands still


async def stalled(cache: SessionCache, target: object, name: str, call: Any) -> tuple[Stall, asyncio.Future[Any]]:
    """A call that has come to the door of a method and waits there."""
    stall = Stall(target, name)
    reading = asyncio.ensure_future(call)
    await wait_until_async(stall.reached.is_set, 10, f"the reader comes to {name}")
    return stall, reading


async def elsewhere(agent: Agent, call: str, *arguments: Any) -> Any:
    """What another process answers, while this one goes on."""
    return await asyncio.to_thread(agent.do, call, *arguments)


async def test_an_old_value_is_never_installed_after_a_newer_one_was_flushed_and_evicted(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache:
        await cache.create("ada", session_id="s1", state={"a": "old", "user:u": "old", "app:p": "old"})
        await drain(urls)
        evict(urls.redis)
        stall, reading = await stalled(cache, cache._tiers.hot, "install", cache.get("ada", "s1"))
        with Agent(urls) as agent:
            await elsewhere(agent, "get", "ada", "s1")
            await elsewhere(agent, "update", "ada", "s1", {"a": "new", "user:u": "new", "app:p": "new"})
        await drain(urls)
        evict(urls.redis)
        stall.release.set()
        expected = {"a": "new", "user:u": "new", "app:p": "new"}
        assert dict((await reading).state) == expected
        with Agent(urls) as fresh:
            assert await elsewhere(fresh, "get", "ada", "s1") == expected


async def test_an_old_value_is_never_installed_over_a_newer_one_that_is_hot(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache:
        await cache.create("ada", session_id="s1", state={"a": "old"})
        await drain(urls)
        evict(urls.redis)
        stall, reading = await stalled(cache, cache._tiers.hot, "install", cache.get("ada", "s1"))
        with Agent(urls) as agent:
            await elsewhere(agent, "get", "ada", "s1")
            await elsewhere(agent, "update", "ada", "s1", {"a": "new"})
            stall.release.set()
            assert dict((await reading).state) == {"a": "new"}
            assert await elsewhere(agent, "get", "ada", "s1") == {"a": "new"}
    await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": "new"}


async def test_a_deleted_session_is_never_installed(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache:
        await cache.create("ada", session_id="s1", state={"a": "old"})
        await drain(urls)
        evict(urls.redis)
        stall, reading = await stalled(cache, cache._tiers.hot, "install", cache.get("ada", "s1"))
        with Agent(urls) as agent:
            assert await elsewhere(agent, "delete", "ada", "s1") is True
        await drain(urls)
        forget(urls, scope_key(session("ada", "s1")))
        stall.release.set()
        with pytest.raises(LookupError):
            await reading


async def test_a_reader_whose_redis_forgets_everything_meanwhile_goes_on(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        evict(urls.redis)
        stall, reading = await stalled(cache, cache._tiers.hot, "install", cache.get("ada", "s1"))
        with raw(urls.redis) as client:
            client.flushall()
        stall.release.set()
        assert dict((await reading).state) == {"a": 1}


def forget(urls: Urls, key: str) -> None:
    """Let one clean hash be evicted."""
    with raw(urls.redis) as client:
        assert client.pttl(key) > 0
        client.delete(key)


async def test_a_large_scope_that_is_staged_in_chunks_is_never_installed_old(urls: Urls) -> None:
    values = {f"k{number}": "old" for number in range(1_500)}
    async with connect(urls, timeout=30) as cache:
        await cache.create("ada", session_id="s1")
        await cache.user_scope("ada").update(values)
        await drain(urls)
        evict(urls.redis)
        stall, reading = await stalled(cache, cache._tiers.hot, "stage", cache.get("ada", "s1"))
        with Agent(urls) as agent:
            await elsewhere(agent, "get", "ada", "s1")
            await elsewhere(agent, "update", "ada", "s1", {"user:k0": "new"}, ["user:k1"])
        await drain(urls)
        evict(urls.redis)
        stall.release.set()
        found = (await reading).state
        assert found["user:k0"] == "new"
        assert "user:k1" not in found
        assert len(found) == 1_499
    await drain(urls)
    assert len(stored_values(urls.database, user("ada")) or {}) == 1_499


async def test_not_found_is_never_told_of_a_session_that_was_created_meanwhile(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache:
        stall, reading = await stalled(cache, cache._tiers.hot, "confirm_absent", cache.get("ada", "s1"))
        with Agent(urls) as agent:
            assert await elsewhere(agent, "create", "ada", "s1", {"a": 1}) is None
        await drain(urls)
        evict(urls.redis)
        stall.release.set()
        assert dict((await reading).state) == {"a": 1}


async def test_a_create_that_found_the_id_free_is_refused_when_it_was_taken_meanwhile(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache:
        creating = cache.create("ada", session_id="s1", state={"a": "mine"})
        await cache.create("ada", session_id="warm")
        stall, running = await stalled(cache, cache._tiers.durable, "read_scopes", creating)
        stall.release.set()
        stall = Stall(cache._tiers.hot, "create")
        await wait_until_async(stall.reached.is_set, 10, "the create comes with its token")
        with Agent(urls) as agent:
            assert await elsewhere(agent, "create", "ada", "s1", {"a": "theirs"}) is None
        await drain(urls)
        evict(urls.redis)
        stall.release.set()
        with pytest.raises(SessionExistsError):
            await running
        assert dict((await cache.get("ada", "s1")).state) == {"a": "theirs"}


async def test_a_loader_that_was_killed_is_overtaken_within_the_time_out(
    urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        evict(urls.redis)
        doomed = connect(urls)
        async with doomed as other:
            place = other._places("ada", "s1").session
            monkeypatch.setattr(sessioncache.hot.tier, "TOKEN_LIFETIME_MS", TOKEN_LIFETIME_MS)
            token = await other._tiers.hot.take_token(place)
            assert isinstance(token, tuple)
        assert (await cache.get("ada", "s1")).state["a"] == 1
