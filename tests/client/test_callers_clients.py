"""The constructor over the caller's own client and engine: identical results, or a clear refusal."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from sessioncache_worker import FlushWorker
from sqlalchemy import create_engine as create_sync_engine
from sqlalchemy.ext.asyncio import create_async_engine

from sessioncache import ConfigurationError, SessionCache
from sessioncache.durable.engine import create_engine
from tests.helpers import Urls, session, stored_values, user
from tests.waiting import stretched

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "decoding": {"decode_responses": True},
    "resp2": {"protocol": 2},
    "resp2 decoding": {"protocol": 2, "decode_responses": True},
    "retrying": {"retry": Retry(ConstantBackoff(0), 10)},
    "latin-1": {"encoding": "latin-1", "decode_responses": True},
    "utf-16": {"encoding": "utf-16"},
    "short time-outs": {"socket_timeout": 0.5, "health_check_interval": 1},
    "one connection": {"single_connection_client": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_any_client_gives_the_same_results(urls: Urls, options: dict[str, Any]) -> None:
    client, engine = Redis.from_url(urls.redis, **options), create_engine(urls.database)
    state: dict[str, Any] = {
        "key é 😀": ["é", "\ud800", "ÿ"],
        "user:ü": 0.1 + 0.2,
        "temp:t": None,
    }
    try:
        cache = SessionCache(client, engine, app="app", timeout=stretched(5.0))
        async with FlushWorker(client, engine, flush_delay=0.01):
            made = await cache.create("ää", session_id="ß", state=state)
            await made.increment("n", 2**60)
            await made.flush(60)
        assert dict((await cache.get("ää", "ß")).state) == state | {"n": 2**60}
        assert [one.id for one in (await cache.list("ää")).items] == ["ß"]
        with pytest.raises(LookupError):
            await cache.get("ää", "other")
        await cache.aclose()
        assert stored_values(urls.database, session("ää", "ß")) == {"key é 😀": state["key é 😀"], "n": 2**60}
        assert stored_values(urls.database, user("ää")) == {"ü": 0.1 + 0.2}
        assert await client.ping(), "the caller's client stays open"
    finally:
        await client.aclose()
        await engine.dispose()


async def test_a_small_pool_of_the_callers_does_not_limit_us(small_urls: Urls) -> None:
    path = small_urls.redis.removeprefix("unix://")
    pool = BlockingConnectionPool.from_url(f"unix://{path}", max_connections=1, timeout=1)
    client, engine = Redis(connection_pool=pool), create_engine(small_urls.database)
    cache = SessionCache(client, engine, app="app", timeout=stretched(5.0))
    await cache.create("ada", session_id="s1", state={"a": 1})
    assert dict((await cache.get("ada", "s1")).state) == {"a": 1}
    await cache.aclose()
    await client.aclose()
    await pool.disconnect()
    await engine.dispose()


async def test_a_client_of_another_kind_is_refused_at_once(small_urls: Urls) -> None:
    engine = create_engine(small_urls.database)
    sync = redis.Redis.from_url(small_urls.redis)
    cluster = RedisCluster(host="127.0.0.1", port=1)
    for client in (sync, cluster, sync.connection_pool, None):
        with pytest.raises(ConfigurationError, match=r"redis\.asyncio\.Redis"):
            SessionCache(client, engine, app="app")  # type: ignore[arg-type]
    sync.close()


@pytest.mark.parametrize("url", ["sqlite:///x.db", "postgresql+psycopg://localhost/x"])
async def test_an_engine_that_is_not_asynchronous_is_refused_at_once(small_urls: Urls, url: str) -> None:
    with pytest.raises(ConfigurationError):
        SessionCache(Redis.from_url(small_urls.redis), create_sync_engine(url), app="app")  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["postgresql+asyncpg://localhost/x", "sqlite+aiosqlite://"])
async def test_an_engine_that_we_cannot_work_on_is_refused_at_once(small_urls: Urls, url: str) -> None:
    with pytest.raises(ConfigurationError):
        SessionCache(Redis.from_url(small_urls.redis), create_async_engine(url), app="app")


async def test_a_wrong_setting_is_refused_by_name(small_urls: Urls) -> None:
    client, engine = Redis.from_url(small_urls.redis), create_engine(small_urls.database)
    for settings in ({"timeouts": 1}, {"timeout": 0}, {"timeout": "5"}, {"buckets": 0}, {"prefix": "{x}"}):
        with pytest.raises(ConfigurationError, match=next(iter(settings))):
            SessionCache(client, engine, app="app", **settings)


async def test_a_closed_cache_says_so(small_urls: Urls) -> None:
    cache = await SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0))
    await cache.aclose()
    with pytest.raises(ConfigurationError, match="closed"):
        await cache.get("ada", "s1")
