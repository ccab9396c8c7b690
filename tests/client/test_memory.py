"""Redis out of memory, and eviction policies."""

from __future__ import annotations

import asyncio

import pytest
import redis

from sessioncache import ConfigurationError, MemoryFullError, SessionCache
from sessioncache.primitives.scopes import ScopeRef
from tests.conftest import StartRedis
from tests.helpers import (
    Urls,
    connect,
    drain,
    evict,
    open_worker,
    raw,
    scope_key,
    session,
    stored_values,
    upgrade,
    user,
)
from tests.servers import RedisKind


@pytest.mark.parametrize("kind", ["valkey", "redis"])
@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_a_policy_that_drops_what_sql_lacks_is_refused_at_start(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind, policy: str
) -> None:
    await upgrade(sqlite_url)
    server = start_redis(kind, maxmemory_policy=policy)
    with pytest.raises(ConfigurationError, match=policy):
        await connect(Urls(server.url, sqlite_url))
    client = redis.asyncio.Redis.from_url(server.url)
    async with connect(Urls(start_redis(kind).url, sqlite_url)) as good:
        cache = SessionCache(client, good._tiers.durable.engine, app="app")
        with pytest.raises(ConfigurationError, match=policy):
            await cache.create("ada")
    await client.aclose()


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_when_memory_is_full_writes_fail_and_all_else_works_until_a_flush_frees_some(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind
) -> None:
    await upgrade(sqlite_url)
    server = start_redis(kind, maxmemory_policy="noeviction")
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "l": [1]})
        await cache.create("ada", session_id="doomed")
        await cache.user_scope("ada").set("big", "x" * 500_000)
        await cache.get("ada", "s1")
        fill(urls.redis)
        for write in (
            lambda: made.set("a", 2),
            lambda: made.increment("a"),
            lambda: made.append("l", 2),
            lambda: made.set("temp:t", 1),
            lambda: cache.create("ada"),
        ):
            with pytest.raises(MemoryFullError):
                await write()  # type: ignore[no-untyped-call]
        assert await made.get("a") == 1
        assert dict((await cache.get("ada", "s1")).state)["l"] == [1]
        assert {one.id for one in (await cache.list("ada")).items} == {"s1", "doomed"}
        assert await made.delete("a") is True
        assert await cache.delete("ada", "doomed") is True
        assert await drain(urls) >= 2
        await cache.flush(60)
        assert stored_values(urls.database, user("ada")) == {"big": "x" * 500_000}
        assert evict(urls.redis) > 0
        await made.set("a", 3)
        assert await made.get("a") == 3


def fill(redis_url: str) -> None:
    """Leave the server no memory for more."""
    with raw(redis_url) as client:
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", used - 100_000)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("other", "x")


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_volatile_eviction_never_drops_what_sql_lacks(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind
) -> None:
    await upgrade(sqlite_url)
    server = start_redis(kind, maxmemory_policy="volatile-lru")
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache:
        for number in range(200):
            await cache.create("ada", session_id=f"clean{number}", state={"a": "x" * 2_000})
        await drain(urls)
        with raw(urls.redis) as client:
            client.config_set("maxmemory", int(client.info("memory")["used_memory"]))
            for number in range(100):
                await cache.create("ada", session_id=f"dirty{number}", state={"a": f"{number}" + "x" * 2_000})
            assert client.info("stats")["evicted_keys"] > 0
        for number in range(100):
            assert (await cache.get("ada", f"dirty{number}")).state["a"].startswith(f"{number}x")
        await drain(urls)
        await cache.flush(60)


async def test_r15_what_becomes_dirty_again_is_pinned_and_what_is_flushed_may_go(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1})
        assert evict(urls.redis) == 0
        await drain(urls)
        await made.update({"a": 2, "user:u": 2, "app:p": 2})
        assert evict(urls.redis) == 0
        await drain(urls)
        await cache.delete("ada", "s1")
        assert evict(urls.redis) == 2, "the user's and the app's scope"
        await drain(urls)
        assert evict(urls.redis) == 1, "the tombstone"


async def test_r15_reading_gives_a_dirty_scope_no_time_to_live(urls: Urls) -> None:
    async with connect(urls, idle_ttl=0.2) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(made.refresh())
        await asyncio.sleep(0.4)
        assert await made.get("a") == 1


@pytest.mark.parametrize("how", ["a worker that starts later", "a worker that runs"])
async def test_what_was_flushed_stays_as_long_as_a_cache_said(urls: Urls, how: str) -> None:
    async with open_worker(urls, idle_ttl=7_200, sweep=0.05) as running:
        await running.flush_once()
        async with connect(urls, idle_ttl=600) as cache:
            await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1})
            if how == "a worker that runs":
                await running._tiers.follow_idle_ttl()
                await running.flush_once()
            else:
                await drain(urls)
            assert all(590 < seconds <= 600 for seconds in seconds_left(urls))
        async with connect(urls) as cache:  # says nothing, and follows
            await (await cache.get("ada", "s1")).set("a", 2)
        async with open_worker(urls, idle_ttl=7_200) as later:
            await later.flush_once()
        assert 590 < max(seconds_left(urls)) <= 600


async def test_without_a_wish_it_stays_as_long_as_the_worker_says(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls, idle_ttl=7_200) as worker:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await worker.flush_once()
        assert 7_100 < min(seconds_left(urls, session("ada", "s1"))) <= 7_200


def seconds_left(urls: Urls, *scopes: ScopeRef) -> list[float]:
    """How long the hashes of a session and of its user stay."""
    with raw(urls.redis) as client:
        return [client.pttl(scope_key(one)) / 1000 for one in scopes or (session("ada", "s1"), user("ada"))]
