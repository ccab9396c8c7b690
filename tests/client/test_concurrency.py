"""Many calls at once, and cancelled ones."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sessioncache import SessionCache
from tests.helpers import Process, Urls, app, drain, evict, stored_values

pytestmark = pytest.mark.alone


async def test_a_thousand_concurrent_calls_succeed_on_the_defaults(cache: SessionCache, urls: Urls) -> None:
    await asyncio.gather(*(cache.create(f"u{n % 20}", session_id=f"s{n}", state={"n": n}) for n in range(1_000)))
    handles = await asyncio.gather(*(cache.get(f"u{n % 20}", f"s{n}") for n in range(1_000)))
    await asyncio.gather(*(handle.increment("app:counter") for handle in handles))
    assert await cache.app_scope().get("counter") == 1_000
    await drain(urls)
    evict(urls.redis)
    found = await asyncio.gather(*(cache.get(f"u{n % 20}", f"s{n}") for n in range(1_000)))
    assert [handle.state["n"] for handle in found] == list(range(1_000))
    assert stored_values(urls.database, app()) == {"counter": 1_000}


@pytest.mark.parametrize(
    "options",
    [{}, {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.1}, {"poolclass": NullPool}],
    ids=["usual pool", "one connection", "no pool"],
)
async def test_a_thousand_cold_calls_over_the_callers_own_connections_succeed(
    cache: SessionCache, urls: Urls, options: dict[str, Any]
) -> None:
    await asyncio.gather(*(cache.create(f"u{n % 20}", session_id=f"s{n}", state={"n": n}) for n in range(500)))
    await drain(urls)
    evict(urls.redis)
    driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}
    name, rest = urls.database.split(":", 1)
    engine, client = create_async_engine(f"{driver[name]}:{rest}", **options), Redis.from_url(urls.redis)
    over = SessionCache(client, engine, app="app", timeout=20.0)
    reads = [over.get(f"u{n % 20}", f"s{n}") for n in range(500)]
    writes = [over.user_scope(f"u{n % 20}").increment("n") for n in range(500)]
    found = await asyncio.gather(*(one for both in zip(reads, writes, strict=True) for one in both))
    assert [handle.state["n"] for handle in found[::2]] == list(range(500))
    assert sum(await asyncio.gather(*(over.user_scope(f"u{n}").get("n") for n in range(20)))) == 500
    await over.aclose()
    await client.aclose()
    await engine.dispose()


async def test_a_thousand_readers_of_one_cold_session_read_sql_once(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    await drain(urls)
    evict(urls.redis)
    reads = 0
    durable = cache._tiers.durable
    inner = durable.read_scopes

    async def counted(wanted: list[object]) -> object:
        nonlocal reads
        reads += 1
        return await inner(wanted)  # type: ignore[arg-type]

    durable.read_scopes = counted  # type: ignore[assignment, method-assign]
    found = await asyncio.gather(*(cache.get("ada", "s1") for _ in range(1_000)))
    assert {handle.state["a"] for handle in found} == {1}
    assert reads <= 3, "one for the session, and one each for shared scopes that another loader took first"


async def test_a_herd_of_four_processes_on_one_cold_session_reads_it_from_sql_once(
    small_cache: SessionCache, small_urls: Urls
) -> None:
    await small_cache.create("ada", session_id="s1", state={"a": 1, "user:u": 2, "app:v": 3})
    await drain(small_urls)
    with ExitStack() as stack:
        herd = [stack.enter_context(Process("tests.client.herd", *small_urls)) for _ in range(4)]
        assert {process.hear() for process in herd} == {"ready"}
        for _ in range(3):
            evict(small_urls.redis)
            for process in herd:
                process.say("go")
            assert sum(int(process.hear()) for process in herd) == 1


async def test_cancelled_calls_never_leave_another_calls_answer_behind(cache: SessionCache) -> None:
    keys = [f"k{n}" for n in range(20)]
    made = await cache.create("ada", session_id="s1", state={key: key for key in keys})
    chance = random.Random(1)
    for _ in range(300):
        doomed = asyncio.ensure_future(made.get(chance.choice(keys)))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() / 2_000)
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
        asked = chance.sample(keys, 3)
        assert await asyncio.gather(*map(made.get, asked)) == asked


async def test_a_cancelled_load_keeps_nobody_waiting(small_cache: SessionCache, small_urls: Urls) -> None:
    await small_cache.create("ada", session_id="s1", state={"a": 1})
    await drain(small_urls)
    for steps in range(0, 60, 3):
        evict(small_urls.redis)
        doomed = asyncio.ensure_future(small_cache.get("ada", "s1"))
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        doomed.cancel()
        await asyncio.gather(doomed, return_exceptions=True)
        async with asyncio.timeout(1):
            assert (await small_cache.get("ada", "s1")).state["a"] == 1


async def test_a_missing_session_keeps_nobody_waiting(cache: SessionCache) -> None:
    async with asyncio.timeout(2):
        made, created = await cache.get_or_create("ada", "s1", state={"user:u": 1})
        assert created
        await cache.get_or_create("ada", "s2", state={"user:v": 2})
        await made.refresh()
    assert dict(made.state) == {"user:u": 1, "user:v": 2}
