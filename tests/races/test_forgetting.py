"""What happens when Redis forgets, is replaced, or is restarted (R17); and when dirt is very old (R14)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessioncache import WriteLostError
from tests.conftest import StartRedis
from tests.helpers import (
    Urls,
    app,
    connect,
    dirty,
    drain,
    evict,
    execute,
    fetch,
    open_worker,
    session,
    start_worker,
    stop_worker,
    stored_values,
    upgrade,
    user,
)
from tests.servers import RedisKind
from tests.waiting import wait_until_async


async def test_r17_a_replaced_redis_flushes_what_it_has_and_overwrites_nothing_newer(
    database_url: str, start_redis: StartRedis
) -> None:
    await upgrade(database_url)
    first, second = (Urls(start_redis().url, database_url) for _ in range(2))
    async with connect(first) as one, connect(second) as two:
        early = await one.create("ada", session_id="s1", state={"same": 0})
        await drain(first)
        await early.update({"same": "older", "mine": "first", "user:u": "first"})
        late = await two.get("ada", "s1")
        assert late.state["same"] == 0, "what the first Redis has not flushed"
        await late.update({"same": "newer", "other": "second"})
        await drain(second)
        with start_worker(first, "--flush-delay", "0.05", "--lease", "2") as worker:
            await wait_until_async(
                lambda: "mine" in (stored_values(database_url, session("ada", "s1")) or {}),
                20,
                "first's dirt is in SQL",
            )
            stop_worker(first, worker)
        expected = {"same": "newer", "mine": "first", "other": "second"}
        assert stored_values(database_url, session("ada", "s1")) == expected
        assert stored_values(database_url, user("ada")) == {"u": "first"}
        query = "SELECT bucket, count(*) FROM sessioncache_incarnation GROUP BY bucket"
        assert max(count for _, count in fetch(database_url, query)) == 3, "the first's was not used again"


async def test_r17_a_worker_of_a_replaced_redis_commits_nothing_under_its_old_incarnation(
    database_url: str, start_redis: StartRedis
) -> None:
    await upgrade(database_url)
    first, second = (Urls(start_redis().url, database_url) for _ in range(2))
    async with connect(first) as one, connect(second) as two, open_worker(first) as worker:
        await one.create("ada", session_id="s1", state={"a": 1})
        scope = session("ada", "s1")
        (dirt,) = await worker.flusher.read([(scope.bucket, scope.member)])
        await two.user_scope("ada").set("u", 1)
        assert await worker.flusher.commit([dirt], await worker._tiers.durable.clock()) == []
        assert stored_values(database_url, session("ada", "s1")) is None
    await drain(first)
    assert stored_values(database_url, session("ada", "s1")) == {"a": 1}


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_r17_after_a_restart_with_its_file_dirt_is_flushed_and_clean_scopes_are_read_anew(
    database_url: str, start_redis: StartRedis, kind: RedisKind
) -> None:
    await upgrade(database_url)
    server = start_redis(kind, appendonly="yes", appendfsync="always")
    urls = Urls(server.url, database_url)
    async with connect(urls) as cache:
        clean = await cache.create("ada", session_id="clean", state={"a": "hot"})
        await drain(urls)
        await cache.flush(60)
        made = await cache.create("ada", session_id="dirty", state={"a": 1, "user:u": 1})
        execute(
            database_url,
            "UPDATE sessioncache_state SET value = '\"sql\"', revision = revision + 1 WHERE scope_id = ?",
            session("ada", "clean").id,
        )
        server.restart()
        assert (await cache.list("ada")).items[0].id == "dirty"
        assert await clean.get("a") == "sql", "a hash of an older incarnation is not shown"
        assert await made.get("a") == 1
        await drain(urls)
        await cache.flush(60)
        assert await made.increment("a") == 2
        await drain(urls)
        await cache.flush(60)
    assert dirty(urls.redis) == 0
    assert stored_values(database_url, session("ada", "dirty")) == {"a": 2}
    assert stored_values(database_url, user("ada")) == {"u": 1}


async def test_r17_a_worker_process_goes_on_after_a_restart(database_url: str, start_redis: StartRedis) -> None:
    await upgrade(database_url)
    server = start_redis("redis", appendonly="yes", appendfsync="always")
    urls = Urls(server.url, database_url)
    with start_worker(urls, "--flush-delay", "0.05") as worker:
        async with connect(urls, timeout=15) as cache:
            made = await cache.create("ada", session_id="s1", state={"a": 1})
            await made.flush(60)
            server.stop()
            server.start()
            await made.get("a")
            await made.set("a", 2)
            await made.flush(60)
        stop_worker(urls, worker)
    assert stored_values(database_url, session("ada", "s1")) == {"a": 2}


async def test_r17_after_a_flushall_clients_go_on_with_what_sql_has(urls: Urls, flushall: Callable[[], None]) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "app:p": 1})
        await drain(urls)
        await made.update({"a": 2, "b": 2})
        flushall()
        assert await made.get("a") == 1
        assert dict((await cache.get("ada", "s1")).state) == {"a": 1, "app:p": 1}
        assert await made.increment("a", 10) == 11
        await cache.create("ada", session_id="s2")
        await drain(urls)
        evict(urls.redis)
        assert dict((await cache.get("ada", "s1")).state) == {"a": 11, "app:p": 1}
        assert {one.id for one in (await cache.list()).items} == {"s1", "s2"}
    assert stored_values(urls.database, app()) == {"p": 1}


async def test_r11_flush_tells_of_writes_that_redis_lost(urls: Urls, flushall: Callable[[], None]) -> None:
    async with connect(urls) as cache:
        kept = await cache.create("ada", session_id="kept", state={"a": 1})
        lost = await cache.create("ada", session_id="lost", state={"a": 1})
        await lost.set("a", 1)
        await drain(urls)
        await lost.set("a", 2)
        never = await cache.create("ada", session_id="never", state={"a": 1})
        flushall()
        await kept.flush(60)
        for handle in (lost, never):
            with pytest.raises(WriteLostError):
                await handle.flush(60)
        await kept.set("a", 2)
        flushall()
        with pytest.raises(WriteLostError):
            await cache.flush(60)
        await cache.flush(60)  # a loss is told once


async def test_r11_a_newer_row_of_another_incarnation_is_no_evidence(urls: Urls, flushall: Callable[[], None]) -> None:
    async with connect(urls) as one, connect(urls) as two:
        made = await one.create("ada", session_id="s1", state={"n": 0, "a": 0})
        await drain(urls)
        await made.flush(60)
        await made.increment("n")
        await made.delete("a")
        flushall()
        other = await two.get("ada", "s1")
        await other.increment("n")
        await other.set("a", 1)
        await drain(urls)
        assert stored_values(urls.database, session("ada", "s1")) == {"n": 1, "a": 1}, "one increment is lost"
        with pytest.raises(WriteLostError):
            await made.flush(60)


async def test_r11_flush_tells_of_a_delete_that_redis_lost(urls: Urls, flushall: Callable[[], None]) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
        await drain(urls)
        await cache.flush(60)
        await cache.delete("ada", "s1")
        flushall()
        with pytest.raises(WriteLostError):
            await cache.flush(60)
        assert (await cache.get("ada", "s1")).id == "s1"


async def test_r14_dirt_read_too_long_ago_inserts_nothing(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls, retention=1) as worker:
        await cache.create("ada", session_id="s1", state={"a": 1})
        read_after = await worker._tiers.durable.clock()
        scope = session("ada", "s1")
        dirt = await worker.flusher.read([(scope.bucket, scope.member)])

        async def old() -> bool:
            return await worker._tiers.durable.clock() - read_after > 500_000

        await wait_until_async(old, 5, "the dirt is older than half the retention")
        assert await worker.flusher.commit(dirt, read_after) == []
        assert stored_values(urls.database, session("ada", "s1")) is None
        assert dirty(urls.redis) == 1
    await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 1}
