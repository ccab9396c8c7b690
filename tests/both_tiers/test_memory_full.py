"""R15: when memory is full writes are refused, while claims, acknowledgements and deletes work on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from sessioncache import ErasureReport, MemoryFullError, Session, SessionCache
from tests.conftest import StartRedis
from tests.helpers import Stall, Urls, connect, drain, evict, open_worker, raw, session, stored_values, upgrade, user


@pytest.fixture
async def full_urls(start_redis: StartRedis, sqlite_url: str) -> Urls:
    """A Valkey that evicts nothing; `fill` leaves it no memory."""
    await upgrade(sqlite_url)
    return Urls(start_redis("valkey", maxmemory_policy="noeviction").url, sqlite_url)


@pytest.fixture
async def full_cache(full_urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache over it."""
    async with connect(full_urls) as opened:
        yield opened


async def made_before_it_was_full(cache: SessionCache, urls: Urls) -> Session:
    """A dirty session, and no memory for more."""
    made = await cache.create("ada", session_id="s1", state={"a": 1, "b": "x" * 100_000})
    await made.get("a")
    with raw(urls.redis) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 50_000)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("other", "x")
    return made


async def test_what_is_dirty_is_flushed_when_memory_is_full(full_cache: SessionCache, full_urls: Urls) -> None:
    made = await made_before_it_was_full(full_cache, full_urls)
    assert await drain(full_urls) > 0
    await made.flush(60)
    assert (stored_values(full_urls.database, session("ada", "s1")) or {})["a"] == 1
    with raw(full_urls.redis) as client:
        assert list(client.scan_iter("*:dirty")) == []


async def test_sessions_and_keys_are_deleted_when_memory_is_full(full_cache: SessionCache, full_urls: Urls) -> None:
    made = await made_before_it_was_full(full_cache, full_urls)
    assert await made.delete("a") is True
    assert await full_cache.delete("ada", "s1") is True


async def test_writes_are_refused_when_memory_is_full(full_cache: SessionCache, full_urls: Urls) -> None:
    made = await made_before_it_was_full(full_cache, full_urls)
    with pytest.raises(MemoryFullError):
        await made.set("a", 2)
    assert await made.get("a") == 1


async def test_whoever_starts_on_an_empty_redis_without_memory_flushes_deletes_and_reads_on(full_urls: Urls) -> None:
    async with connect(full_urls) as cache:
        await cache.create("ada", session_id="s1")
        await drain(full_urls)
    with raw(full_urls.redis) as client:
        client.execute_command("FLUSHALL", "SYNC")  # type: ignore[no-untyped-call]
        client.rpush("other", *("x" * 1_000 for _ in range(2_000)))
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 1_000_000)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("another", "x")
    async with connect(full_urls) as cache, open_worker(full_urls) as worker:
        assert await worker.flush_once() == 0
        assert await cache.delete("ada", "s1") is True
        assert await worker.flush_once() == 0
        await cache.flush(60)
        with pytest.raises(MemoryFullError):
            await cache.create("ada")
        with raw(full_urls.redis) as client:
            client.delete("other")


async def test_nothing_is_forked_whose_state_cannot_be_read_for_lack_of_memory(
    full_cache: SessionCache, full_urls: Urls
) -> None:
    await full_cache.app_scope().set("p", 1)
    await drain(full_urls)
    evict(full_urls.redis)
    parent = await full_cache.create("ada", session_id="s1", state={"a": 1})
    evict(full_urls.redis)  # what it shares with the app
    loading = Stall(full_cache._tiers.durable, "read_scopes")
    fork = asyncio.ensure_future(parent.fork())
    await loading.reached.wait()
    with raw(full_urls.redis) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) - 50_000)
    loading.release.set()
    with pytest.raises(MemoryFullError):
        await fork
    with raw(full_urls.redis) as client:
        client.config_set("maxmemory", 0)
    assert [one.id for one in (await full_cache.list("ada")).items] == ["s1"]
    assert (await parent.fork()).state == {"a": 1, "app:p": 1}


async def test_a_user_is_erased_when_memory_is_full_though_nothing_of_the_user_is_hot(
    full_cache: SessionCache, full_urls: Urls
) -> None:
    await full_cache.create("eve", session_id="s2", state={"user:a": 1, "user:b": 2, "k": 3})
    await made_before_it_was_full(full_cache, full_urls)
    await drain(full_urls)
    evict(full_urls.redis)
    with raw(full_urls.redis) as client:
        client.config_set("maxmemory", 1)
    assert await full_cache.erase_user("eve") == ErasureReport(sessions=1, entries=3)
    with raw(full_urls.redis) as client:
        client.config_set("maxmemory", 0)
    assert stored_values(full_urls.database, session("eve", "s2")) is None
    assert not stored_values(full_urls.database, user("eve"))
