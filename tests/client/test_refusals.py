"""A server that takes no writes, or is no primary any more: told at once, and left for a new connection (R15, R17)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from sessioncache import HotTierUnavailableError
from sessioncache.health.examination import examine, find_targets
from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Layout
from sessioncache.hot.scripts import Script
from sessioncache.settings import CacheSettings
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, open_worker, upgrade
from tests.proxy import Proxy
from tests.servers import RedisKind, RedisServer
from tests.waiting import wait_until_async

KINDS = pytest.mark.parametrize("kind", ["valkey", "redis"])


def fail_snapshots(server: RedisServer) -> None:
    """Let the server's snapshots fail, so that it refuses writes."""
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    with server.client() as client:
        client.config_set("stop-writes-on-bgsave-error", "yes")
        client.config_set("save", "3600 1")
        client.set("something", "changed")
        client.bgsave()


def age(server: RedisServer) -> None:
    """Let all that has a time to live be due for a renewal."""
    with server.client() as client:
        for key in client.scan_iter():
            if client.ttl(key) > 0:
                client.expire(key, 600)


def want_replicas(server: RedisServer) -> None:
    """Let the server want more replicas than follow it."""
    with server.client() as client:
        client.config_set("min-replicas-to-write", 1)


def follow(server: RedisServer, primary: RedisServer | None) -> None:
    """Let the server follow a primary; None: be one."""
    with server.client() as client:
        if primary is None:
            client.replicaof("NO", "ONE")
        else:
            client.replicaof("127.0.0.1", str(primary.port))


async def refuses(server: RedisServer, word: str) -> None:
    """Wait until the server refuses writes."""

    def refused() -> bool:
        try:
            with server.client() as client:
                client.set("something", "changed")
        except redis.ResponseError as error:
            return str(error).startswith(word)
        return False

    await wait_until_async(refused, 20, f"the server answers {word}")


@KINDS
@pytest.mark.parametrize(("word", "harm"), [("MISCONF", fail_snapshots), ("NOREPLICAS", want_replicas)])
async def test_r15_what_is_hot_is_read_and_a_write_is_refused_at_once_while_no_writes_are_let_in(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind, word: str, harm: Callable[[RedisServer], None]
) -> None:
    server = start_redis(kind)
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url), timeout=60) as cache:
        session = await cache.create("ada", session_id="s1", state={"k": 1})
        await session.set("temp:t", 2)
        await session.namespace("n").set("x", 3)
        await cache.get("ada", "s1")
        age(server)
        harm(server)
        await refuses(server, word)
        again = await cache.get("ada", "s1")
        assert dict(again.state) == {"k": 1, "temp:t": 2}
        assert await again.get("k") == 1
        assert await again.namespace("n").get("x") == 3
        assert [one.id for one in (await cache.list("ada")).items] == ["s1"]
        began = time.monotonic()
        with pytest.raises(HotTierUnavailableError, match=f"refuses writes.*{word}"):
            await session.set("k", 2)
        assert time.monotonic() - began < 30
        report = await examine(find_targets(server.url, sqlite_url, ""), CacheSettings())
        assert any(one.name == "writes" and word in one.found for one in report.findings)


@asynccontextmanager
async def working(urls: Urls) -> AsyncIterator[None]:
    """A worker that runs in this process."""
    async with open_worker(urls) as worker:
        running = asyncio.ensure_future(worker.run())
        yield
        worker.stop()
        await running


@asynccontextmanager
async def behind_one_address(
    start_redis: StartRedis, kind: RedisKind, database_url: str
) -> AsyncIterator[tuple[Proxy, RedisServer, RedisServer, Urls]]:
    """Two servers, the second one a replica of the first; a proxy that leads to the first."""
    first, second = (start_redis(kind, tcp=True, repl_diskless_sync_delay=0) for _ in range(2))
    follow(second, first)
    await upgrade(database_url)
    async with Proxy(first.socket) as proxy:
        yield proxy, first, second, Urls(f"redis://127.0.0.1:{proxy.port}/0", database_url)


async def fail_over(proxy: Proxy, old: RedisServer, new: RedisServer) -> None:
    """Promote the replica, demote the primary, and let new connections lead to the former; old ones stay."""
    with old.client() as one, new.client() as other:
        await wait_until_async(
            lambda: (
                one.info("replication")["master_repl_offset"] == other.info("replication")["master_repl_offset"]
                and other.info("replication")["master_link_status"] == "up"
            ),
            20,
            "the replica has everything",
        )
    follow(new, None)
    follow(old, new)
    proxy.upstream = str(new.socket)


@KINDS
async def test_r17_a_demoted_primary_is_left_by_reads_and_writes(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind
) -> None:
    async with (
        behind_one_address(start_redis, kind, sqlite_url) as (proxy, first, second, urls),
        connect(urls) as cache,
    ):
        session = await cache.create("ada", session_id="s1", state={"k": 1})
        await fail_over(proxy, first, second)
        assert await session.get("k") == 1
        await session.set("k", 2)
        await fail_over(proxy, second, first)
        await session.set("k", 3)
        assert await (await cache.get("ada", "s1")).get("k") == 3


@KINDS
async def test_r17_workers_and_watches_leave_a_demoted_primary(
    start_redis: StartRedis, sqlite_url: str, kind: RedisKind
) -> None:
    async with (
        behind_one_address(start_redis, kind, sqlite_url) as (proxy, first, second, urls),
        connect(urls) as cache,
    ):
        session = await cache.create("ada", session_id="s1", state={"k": 1})
        async with working(urls), session.watch() as changes:
            await session.flush()
            await fail_over(proxy, first, second)
            await session.set("k", 2)
            await session.flush()
            channel = Layout("sessioncache", 256).wake_channel
            await wait_until_async(lambda: not any(listeners(first, channel)), 20, "nobody listens at the old primary")
            await wait_until_async(lambda: all(listeners(second, channel)), 20, "all listen at the new one")
            change = await changes.next()
            assert change.keys == ("k",) or change.missed


def listeners(server: RedisServer, channel: str) -> tuple[int, int]:
    """Subscribers of a channel, and sharded channels with subscribers."""
    with server.client() as client:
        return dict(client.pubsub_numsub(channel))[channel.encode()], len(client.pubsub_shardchannels())


async def test_r17_a_watch_alone_notices_that_its_server_has_become_a_replica(
    start_redis: StartRedis, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessioncache.hot.subscriptions._SILENCE", 0.1)
    async with behind_one_address(start_redis, "redis", sqlite_url) as (proxy, first, second, urls):
        cache = await connect(urls)
        watch = (await cache.create("ada")).watch()
        await watch.begin()
        await fail_over(proxy, first, second)
        await wait_until_async(lambda: listeners(second, "none")[1], 20, "it listens at the new one")
        await cache.aclose()


async def test_a_replica_is_told_as_one_after_a_few_tries(start_redis: StartRedis, sqlite_url: str) -> None:
    server = start_redis("redis")
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url), timeout=60) as cache:
        session = await cache.create("ada", state={"k": 1})
        with server.client() as client:
            client.replicaof("127.0.0.1", "1")
        for call in (lambda: session.get("k"), lambda: session.set("k", 2), lambda: cache.list("ada")):
            await told_at_once(call)


async def told_at_once(call: Callable[[], Awaitable[Any]]) -> None:
    """The call fails, since the server is a replica, long before its time-out."""
    began = time.monotonic()
    with pytest.raises(HotTierUnavailableError, match="is a replica"):
        await call()
    assert time.monotonic() - began < 30


async def test_r15_a_refusal_is_asked_for_once(
    start_redis: StartRedis, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis("redis")
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url), timeout=60) as cache:
        session = await cache.create("ada")
        want_replicas(server)
        asked = count_calls(monkeypatch)
        with pytest.raises(HotTierUnavailableError):
            await session.set("k", 1)
        assert len(asked) == 1


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that gets what is called of a link from now on."""
    asked: list[object] = []
    call = HotClient.call

    async def counting(link: HotClient, script: Script, *given: Any) -> Any:
        asked.append(script.name)
        return await call(link, script, *given)

    monkeypatch.setattr(HotClient, "call", counting)
    return asked
