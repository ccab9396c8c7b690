"""R17: another replid alone is no forgetting, and a restart with all that there was is no alarm.

A first replica changes the replid, and so do a copy by `redis-cli --rdb` and a backlog that is freed.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from sessioncache import DurableTierUnavailableError, Session, SessionCache
from sessioncache.health.examination import examine, find_targets
from sessioncache.health.findings import Level
from sessioncache.primitives.names import KeyScope
from sessioncache.settings import CacheSettings
from tests.conftest import StartRedis, missing
from tests.helpers import Urls, connect, drain, execute, fetch, upgrade
from tests.proxy import Proxy
from tests.servers import PostgreSQLServer, RedisKind, RedisServer
from tests.waiting import wait_until, wait_until_async

KINDS = pytest.mark.parametrize("kind", ["valkey", "redis"])


def attach_replica(server: RedisServer, start_redis: StartRedis, _: Path) -> RedisServer:
    """Let a first replica follow the server."""
    replica = start_redis(server.kind, tcp=True)
    with replica.client() as client:
        client.replicaof("127.0.0.1", str(server.port))
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", 20, "the replica follows")
    return replica


def copy(server: RedisServer, start_redis: StartRedis, folder: Path) -> None:
    """Copy all by `redis-cli --rdb`."""
    if shutil.which("redis-cli") is None:
        missing("redis-cli")
    file = str(folder / "copy.rdb")
    subprocess.run(["redis-cli", "-s", str(server.socket), "--rdb", file], check=True, capture_output=True, timeout=30)


def free_backlog(server: RedisServer, start_redis: StartRedis, folder: Path) -> None:
    """Let the backlog be freed that the last replica left behind."""
    with server.client() as client:
        client.config_set("repl-backlog-ttl", 1)
        attach_replica(server, start_redis, folder).kill()
        wait_until(lambda: not client.info("replication")["repl_backlog_active"], 30, "the backlog is freed")


EVENTS = pytest.mark.parametrize("event", [attach_replica, copy])


async def used(cache: SessionCache) -> Session:
    """A session that was flushed, hot with all that belongs to it."""
    await cache.create("ada", session_id="s1", state={"k": 1, "user:u": 1, "app:a": 1})
    return await cache.get("ada", "s1")


@KINDS
@EVENTS
async def test_r17_leases_and_what_is_hot_outlive_another_replid(
    start_redis: StartRedis,
    sqlite_url: str,
    tmp_path: Path,
    kind: RedisKind,
    event: Callable[[RedisServer, StartRedis, Path], object],
) -> None:
    server = start_redis(kind, tcp=True, repl_diskless_sync_delay=0)
    await upgrade(sqlite_url)
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache:
        session = await used(cache)
        await drain(urls)
        async with session.lease(ttl=600) as held:
            before, known = replid(server), incarnations(sqlite_url)
            await asyncio.to_thread(event, server, start_redis, tmp_path)
            assert replid(server) != before
            await held.set("k", 2)
            assert await session.get("k") == 2
        await drain(urls)
    assert incarnations(sqlite_url) == known


def replid(server: RedisServer) -> str:
    """By which the server goes now."""
    with server.client() as client:
        return str(client.info("replication")["master_replid"])


def incarnations(database_url: str) -> list[tuple[object, ...]]:
    """All that were ever registered."""
    return fetch(database_url, "SELECT bucket, incarnation FROM sessioncache_incarnation ORDER BY 1, 2")


@pytest.fixture
async def away(postgresql_server: PostgreSQLServer, postgresql_url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of PostgreSQL, and the database's URL through it."""
    await upgrade(postgresql_url)
    name = postgresql_url.split("@/")[1].split("?")[0]
    async with Proxy(postgresql_server.folder / ".s.PGSQL.5432") as proxy:
        yield proxy, f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}"


async def test_r17_with_sql_away_a_first_replica_stops_nothing(
    start_redis: StartRedis, away: tuple[Proxy, str], postgresql_url: str, tmp_path: Path
) -> None:
    proxy, url = away
    server = start_redis("redis", tcp=True, repl_diskless_sync_delay=0)
    async with connect(Urls(server.url, url)) as cache:
        session = await used(cache)
        known = incarnations(postgresql_url)
        await proxy.refuse()
        proxy.cut()
        await asyncio.to_thread(attach_replica, server, start_redis, tmp_path)
        await session.set("k", 2)
        assert (await cache.get("ada", "s1")).state["k"] == 2
        await asyncio.to_thread(server.restart)
        with pytest.raises(DurableTierUnavailableError):
            await session.get("k")
        await proxy.accept()
    assert incarnations(postgresql_url) == known


@KINDS
async def test_r17_with_sql_locked_a_first_replica_stops_nothing(
    start_redis: StartRedis, sqlite_url: str, tmp_path: Path, kind: RedisKind
) -> None:
    """Nobody can write to SQL: what it names already need not be written, whoever waits for something else."""
    server = start_redis(kind, tcp=True, repl_diskless_sync_delay=0)
    await upgrade(sqlite_url)
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache, connect(urls) as other:
        session = await used(cache)
        again = await other.get("ada", "s1")
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            await asyncio.to_thread(attach_replica, server, start_redis, tmp_path)
            new = asyncio.create_task(cache.create("bob", session_id="s2"))  # of a bucket that SQL does not know
            _, *swapping = cache._tiers.fencing._steps
            await wait_until_async(
                lambda: any(step._tasks for step in swapping), 20, "a bucket is to be registered in SQL"
            )
            await session.set("k", 2)
            assert (await cache.get("ada", "s1")).state["k"] == 2
            await again.set("k", 3)
            await other._tiers.fencing.register([again._by_scope[KeyScope.SESSION].ref.bucket])
            assert not new.done()
        await new


async def test_r17_a_fence_that_names_another_one_is_heeded_when_sql_is_back(
    start_redis: StartRedis, away: tuple[Proxy, str], postgresql_url: str, tmp_path: Path
) -> None:
    proxy, url = away
    server, urls = start_redis("redis", tcp=True, repl_diskless_sync_delay=0), Urls("", postgresql_url)
    async with connect(Urls(server.url, url)) as cache:
        session = await used(cache)
        await proxy.refuse()
        proxy.cut()
        async with connect(urls._replace(redis=start_redis("redis").url)) as other:
            await (await other.create("ada", session_id="s2")).set("k", 1)
        fenced = fetch(postgresql_url, "SELECT incarnation FROM sessioncache_fence")
        await asyncio.to_thread(attach_replica, server, start_redis, tmp_path)
        await session.set("k", 2)
        await proxy.accept()
        await drain(urls._replace(redis=server.url))
        assert set(fenced) - set(fetch(postgresql_url, "SELECT incarnation FROM sessioncache_fence"))
        await session.flush()


async def test_r17_a_kept_incarnation_stays_only_where_sql_names_it(
    start_redis: StartRedis, sqlite_url: str, tmp_path: Path
) -> None:
    server = start_redis("redis", tcp=True, repl_diskless_sync_delay=0)
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url)) as cache:
        session = await used(cache)
        known = incarnations(sqlite_url)
        execute(sqlite_url, "DELETE FROM sessioncache_fence")
        execute(sqlite_url, "DELETE FROM sessioncache_incarnation")
        await asyncio.to_thread(attach_replica, server, start_redis, tmp_path)
        await session.set("k", 2)
    assert not set(known) & set(incarnations(sqlite_url)), "SQL, which forgot them, has other ones now"


async def test_r17_a_backlog_that_is_freed_is_no_forgetting(
    start_redis: StartRedis, sqlite_url: str, tmp_path: Path
) -> None:
    server = start_redis("redis", tcp=True, repl_diskless_sync_delay=0)
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url)) as cache:
        session = await used(cache)
        known, before = incarnations(sqlite_url), replid(server)
        await asyncio.to_thread(free_backlog, server, start_redis, tmp_path)
        assert replid(server) != before
        await session.set("k", 2)
    assert incarnations(sqlite_url) == known


@KINDS
async def test_r17_a_restart_with_all_that_there_was_is_no_alarm(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sessioncache")
    server = start_redis(kind, appendonly="yes")
    await upgrade(sqlite_url)
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache:
        for number in range(20):
            await cache.create("ada", session_id=f"s{number}", state={"k": 1})
        caplog.clear()
        await asyncio.to_thread(server.restart)
        for number in range(20):
            await (await cache.get("ada", f"s{number}")).set("k", 2)
        assert [one for one in caplog.records if one.levelno > logging.INFO] == []
        assert len([one for one in caplog.records if one.name.endswith(".fencing")]) == 1
    assert await incarnations_told(urls) is Level.GOOD


async def test_r17_a_redis_that_came_back_empty_is_one(
    start_redis: StartRedis, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis("redis", appendonly="yes")
    await upgrade(sqlite_url)
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
        with server.client() as client:
            client.flushall()
        await cache.create("ada", session_id="s2")
    assert "may have forgotten" in caplog.text
    assert await incarnations_told(urls) is Level.WARNING


async def incarnations_told(urls: Urls) -> Level:
    """How the doctor judges the changes of incarnations."""
    report = await examine(find_targets(urls.redis, urls.database, ""), CacheSettings())
    return next(one.level for one in report.findings if one.name == "incarnations")
