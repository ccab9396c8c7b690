"""An idle worker: what it asks of Redis, and that it is woken by work, or finds what it was not told of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from sessioncache_worker import FlushWorker, janitor, worker
from sessioncache_worker import notifications as wake
from sessioncache_worker.notifications import listen

from sessioncache import SessionCache
from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Layout
from sessioncache.hot.poll import Poll
from sessioncache.settings import WorkerSettings
from tests.conftest import StartRedis
from tests.helpers import BUCKETS, Urls, connect, drain, execute, open_worker, raw, session, stored_values
from tests.proxy import Proxy
from tests.servers import RedisKind
from tests.waiting import stretched, wait_until_async

LAYOUT = Layout("sessioncache", BUCKETS)
NEVER = 600.0
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "resp2": {"protocol": 2},
    "decoding": {"decode_responses": True},
    "resp2 decoding": {"protocol": 2, "decode_responses": True},
    "health checks": {"socket_timeout": 0.5, "health_check_interval": 1},
}
FASTER = 20.0
"""How much faster than by default the periodic tasks of the worker follow each other whose commands are counted."""


@asynccontextmanager
async def running(urls: Urls, **settings: Any) -> AsyncIterator[FlushWorker]:
    """A worker that runs, and has nothing to do after its first look at all buckets."""
    async with open_worker(urls, **settings) as one:
        looks = Counting(one._tiers.backlog, "claim")
        task = asyncio.ensure_future(one.run())
        try:

            def is_at_rest() -> bool:
                return looks.calls > 0 and one._schedule.seconds_to_next(0.0) is None

            await wait_until_async(is_at_rest, 10, "the worker has looked at all buckets")
            yield one
        finally:
            one.stop()
            await task


def processed(redis_url: str) -> int:
    """Commands that Redis has executed so far, those within scripts included."""
    with raw(redis_url) as client:
        return int(client.info("stats")["total_commands_processed"])


class Counting:
    """An asynchronous method that counts its calls."""

    def __init__(self, target: object, name: str) -> None:
        self._inner: Callable[..., Any] = getattr(target, name)
        self.calls = 0
        setattr(target, name, self)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = await self._inner(*args, **kwargs)
        self.calls += 1
        return found


@pytest.fixture
async def hot(small_urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache over some clean sessions, and run leases whose holders are gone."""
    async with connect(small_urls) as cache:
        await asyncio.gather(*(abandoned(cache, f"u{number}") for number in range(30)))
        await drain(small_urls)
        yield cache


async def abandoned(cache: SessionCache, user: str) -> None:
    """Make a session whose runner goes without giving its lease back."""
    made = await cache.create(user, session_id="s", state={"a": 1, "user:b": 2, "app:c": 3})
    place = cache._tiers.layout.place(session(user, "s"))
    await cache._tiers.leases.take(place, made._birth, b"token", 30.0)


@pytest.mark.alone
async def test_an_idle_worker_sends_fewer_than_20_commands_a_second(
    small_urls: Urls, hot: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does in a minute, done faster: heartbeats, sweeps, a PING over the wake-up channel, a janitor's turn."""
    monkeypatch.setattr(worker, "_HEARTBEAT", worker._HEARTBEAT / FASTER)
    monkeypatch.setattr(wake, "_SILENCE", wake._SILENCE / FASTER)
    usual = WorkerSettings()
    async with running(small_urls, sweep=usual.sweep / FASTER, janitor=usual.janitor / FASTER) as one:
        beats, turns = Counting(one._tiers.backlog, "beat"), Counting(one._janitor, "turn")
        sweeps = Counting(one._sweeper, "dirty")
        before, began = processed(small_urls.redis), asyncio.get_running_loop().time()
        await wait_until_async(lambda: beats.calls and turns.calls and sweeps.calls, 30, "each has had its turn")
        count, took = processed(small_urls.redis) - before, asyncio.get_running_loop().time() - began
    assert 0 < count / (took * FASTER) < 20


@pytest.mark.foreign_keys
async def test_among_many_keys_of_others_the_janitor_looks_through_some_each_turn(
    small_urls: Urls, hot: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(small_urls.database, "DELETE FROM sessioncache_state")
    with raw(small_urls.redis) as client:
        client.mset({f"foreign:{number}": "" for number in range(5_000)})
        monkeypatch.setattr(janitor, "_PAGES", 3)
        async with open_worker(small_urls) as one:
            before = scans(client)
            amiss = [await one._janitor.compare_sample(100) for _ in range(5)]
            assert 5 < scans(client) - before <= 15
        assert sum(amiss) == 61, "a pass of several turns comes to every scope"
    await drain(small_urls)


async def test_the_janitor_forgets_silent_workers_each_turn_and_silent_runners_in_a_pass_of_several(
    small_urls: Urls, hot: SessionCache
) -> None:
    with raw(small_urls.redis) as client:
        for bucket in range(BUCKETS):
            client.hset(LAYOUT.control(bucket), f"l:s{bucket:032x}", "incarnation|birth|token|1")
        client.hset(LAYOUT.control(0), "w:silent", "1|{}")
        async with open_worker(small_urls) as one:
            one._janitor._next_bucket = 1
            forgotten = [await one._janitor.forget_silent()]
            assert not client.hexists(LAYOUT.control(0), "w:silent")
            forgotten += [await one._janitor.forget_silent() for _ in range(janitor._PASS - 1)]
    assert sum(forgotten) == BUCKETS + 1
    assert max(forgotten) < 10


async def test_r4_the_janitor_looks_at_each_bucket_in_several_turns_one_after_the_other(small_urls: Urls) -> None:
    async with open_worker(small_urls) as one:
        turns = [one._janitor._next_buckets() for _ in range(janitor._PASS)]
    at = [number for number, buckets in enumerate(turns) if 1 in buckets]
    assert any(at[i : i + 5] == list(range(at[i], at[i] + 5)) for i in range(len(at)))


def scans(client: Any) -> int:
    """SCANs that Redis has answered."""
    return int(client.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])


async def test_an_idle_cache_sends_nothing(small_urls: Urls, hot: SessionCache) -> None:
    with raw(small_urls.redis) as client:
        client.ping()
        before = client.info("stats")["total_commands_processed"]
        await asyncio.sleep(0.2)
        assert client.info("stats")["total_commands_processed"] == before + 1, "this question only"


async def test_an_idle_worker_is_woken_by_work_and_flushes_it_once_its_delay_is_over(
    small_urls: Urls, hot: SessionCache
) -> None:
    made = await hot.get("u0", "s")
    async with running(small_urls, flush_delay=0.2, sweep=NEVER, janitor=NEVER) as one:
        acknowledged = asyncio.Event()
        flush = one.flusher.flush

        async def flushed(*args: Any, **named: Any) -> int:
            rows = await flush(*args, **named)
            if rows:
                acknowledged.set()
            return rows

        one.flusher.flush = flushed  # type: ignore[method-assign]
        await made.set("a", "new")
        async with asyncio.timeout(stretched(2)):
            await acknowledged.wait()
        assert stored(small_urls) == {"a": "new"}


async def test_work_of_which_nothing_was_heard_is_found_by_the_sweep(
    small_urls: Urls, hot: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_client: Redis, _layout: Layout, heard: Callable[[int | None], None]) -> None:
        heard(None)
        await asyncio.Event().wait()  # one that ends is started again, and announces everything once more

    monkeypatch.setattr(worker, "listen", deaf)
    made = await hot.get("u0", "s")
    async with running(small_urls, flush_delay=0.05, sweep=0.2, janitor=NEVER) as worked:
        now = asyncio.get_running_loop().time
        await wait_until_async(lambda: worked._schedule.seconds_to_next(now()) is None, 5, "nothing is to be done")
        await made.set("a", "new")
        await wait_until_async(lambda: stored(small_urls) == {"a": "new"}, 5, "the change is in SQL")


def stored(urls: Urls) -> dict[str, Any] | None:
    """What SQL holds of the first session."""
    return stored_values(urls.database, session("u0", "s"))


# ---- the sweep


@pytest.fixture
async def sweep(redis_url: str) -> AsyncIterator[Poll]:
    """The sweep of an empty Redis, whose dirt is made up."""
    link = HotClient.from_url(redis_url)
    yield Poll(link, LAYOUT)
    await link.command("FLUSHALL")
    await link.aclose()


async def test_a_sweep_finds_the_buckets_that_are_dirty_and_no_others(sweep: Poll, redis_url: str) -> None:
    assert await sweep.dirty(range(BUCKETS)) == []
    make_dirty(redis_url, 0, 63, 64, 255)
    assert await sweep.dirty(range(BUCKETS)) == [0, 63, 64, 255]
    assert await sweep.dirty(range(1, 64)) == [63]


async def test_a_sweep_that_finds_nothing_takes_a_command_for_64_buckets(sweep: Poll, redis_url: str) -> None:
    await sweep.dirty(range(BUCKETS))
    with raw(redis_url) as client:
        client.config_resetstat()
        await sweep.dirty(range(BUCKETS))
        assert client.info("commandstats")["cmdstat_exists"]["calls"] == BUCKETS / 64
        client.config_resetstat()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_cluster_is_swept_bucket_by_bucket(start_redis: StartRedis, kind: RedisKind) -> None:
    server = start_redis(kind, tcp=True, cluster_enabled="yes")
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        await wait_until_async(lambda: client.cluster("info")["cluster_state"] == "ok", 10, "the cluster is up")
    make_dirty(server.url, 0, 63, 64, 255)
    link = HotClient.from_url(server.url)
    one = Poll(link, LAYOUT)
    for _ in range(2):
        assert await one.dirty(range(BUCKETS)) == [0, 63, 64, 255]
    await link.aclose()


def make_dirty(redis_url: str, *buckets: int) -> None:
    """Let buckets have a dirty index."""
    with raw(redis_url) as client:
        for bucket in buckets:
            client.zadd(LAYOUT.dirty(bucket), {"member": 1})


# ---- wake-ups


@pytest.fixture
async def proxy(small_urls: Urls) -> AsyncIterator[Proxy]:
    """A proxy in front of Redis."""
    async with Proxy(small_urls.redis.removeprefix("unix://")) as one:
        yield one


@asynccontextmanager
async def listening(client: Redis) -> AsyncIterator[asyncio.Queue[int | None]]:
    """What is heard, once Redis has confirmed that it will be."""
    heard: asyncio.Queue[int | None] = asyncio.Queue()
    task = asyncio.ensure_future(listen(HotClient(client, owned=False), LAYOUT, heard.put_nowait))
    try:
        async with asyncio.timeout(10):
            assert await heard.get() is None
            yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.aclose()


async def test_a_client_that_subscribes_anew_by_itself_may_have_missed_something(proxy: Proxy) -> None:
    client = Redis.from_url(f"redis://127.0.0.1:{proxy.port}", retry=Retry(ConstantBackoff(0.01), 1_000))
    async with listening(client) as heard:
        proxy.cut()
        assert await heard.get() is None


async def test_a_connection_that_is_gone_without_a_word_is_made_anew(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "_SILENCE", 0.05)
    monkeypatch.setattr(wake, "_ANSWER", 0.5)
    async with listening(Redis.from_url(f"redis://127.0.0.1:{proxy.port}")) as heard:
        proxy.swallow()
        assert await heard.get() is None


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_a_silent_connection_that_lives_is_kept(
    small_urls: Urls, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(wake, "_SILENCE", 0.01)
    with raw(small_urls.redis) as client:
        before = pings(client)
        async with listening(Redis.from_url(small_urls.redis, **options)) as heard:
            await wait_until_async(lambda: pings(client) > before + 3, 10, "it was asked again and again")
            client.publish(LAYOUT.wake_channel, LAYOUT.control(7)[:-3])
            assert await heard.get() == 7, "nothing else was heard: it has subscribed once"


def pings(client: Any) -> int:
    """PINGs that Redis has answered."""
    return int(client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])
