"""Metrics: what waits for SQL, what has been done, who works on it; read without writing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessioncache import MemoryFullError, Session, SessionCache, StaleSessionError
from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Layout
from sessioncache.hot.metrics import SILENT, Metrics, Sample, WorkerSample, lag_seconds
from sessioncache.operations.dead_letters import DeadLetterQueue
from tests.conftest import StartRedis
from tests.helpers import BUCKETS, Urls, connect, drain, evict, open_worker, raw, session, settle, upgrade
from tests.keys import read_dump
from tests.worker.poison import refuse_poison

LAYOUT = Layout("sessioncache", BUCKETS)


@pytest.fixture
async def vitals(small_urls: Urls) -> AsyncIterator[Metrics]:
    """The vitals of `small_urls`."""
    link = HotClient.from_url(small_urls.redis)
    yield Metrics(link, LAYOUT)
    await link.aclose()


async def conflict(made: Session) -> None:
    """A write that is refused since the session is not as its writer thinks."""
    with pytest.raises(StaleSessionError):
        await made.update({"a": 1}, if_revision=made.revision - 1)


async def test_a_redis_that_nobody_used_has_vitals_too(vitals: Metrics) -> None:
    pulse = await vitals.read()
    assert (pulse.dirty_scopes, pulse.dirty_entries, pulse.exact, pulse.oldest_age) == (0, 0, True, None)
    assert (pulse.rows, pulse.flushes, pulse.hydrates, pulse.conflicts, pulse.dead_letters) == (0, 0, 0, 0, 0)
    assert (pulse.lags, pulse.workers) == ({}, ())
    assert len(pulse.incarnations) == BUCKETS
    assert not any(one.id or one.registered for one in pulse.incarnations.values())
    assert pulse.server.used_memory > 0
    assert pulse.server.clients >= 1


async def test_dirt_is_counted_by_scopes_and_entries_and_flushed_rows_with_their_lag(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    made = await small_cache.create("ada", session_id="s1", state={"a": 1, "b": 2, "user:c": 3, "temp:d": 4})
    await made.namespace("n").set("e", 5)
    before = await vitals.read()
    assert (before.dirty_scopes, before.dirty_entries, before.exact) == (3, 4, True)
    assert before.oldest_age is not None
    assert 0 <= before.oldest_age < 30
    await drain(small_urls)
    after = await vitals.read()
    assert (after.dirty_scopes, after.dirty_entries, after.oldest_age) == (0, 0, None)
    assert (after.rows, after.flushes) == (4, 3)
    assert sum(after.lags.values()) == 4
    assert all(0 < lag_seconds(step) < 30 for step in after.lags)
    assert after.time > before.time


async def test_a_bucket_is_told_with_its_incarnation_and_whether_sql_knows_it(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    await small_cache.create("ada", session_id="s1")
    bucket = session("ada", "s1").bucket
    known = (await vitals.read()).incarnations[bucket]
    assert known.registered
    with raw(small_urls.redis) as client:
        assert client.hget(LAYOUT.control(bucket), "incarnation") == known.id.encode()
        client.hset(LAYOUT.control(bucket), mapping={"replid": "another", "run": "another process"})
    assert not (await vitals.read()).incarnations[bucket].registered
    await small_cache.get("ada", "s1")
    assert (await vitals.read()).incarnations[bucket].id != known.id


async def test_hydrates_and_conflicts_are_counted_and_writes_that_succeed_are_not(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    made = await small_cache.create("ada", session_id="s1", state={"a": 1})
    await made.set("a", 2)
    await conflict(made)
    async with connect(small_urls) as other:
        draft = made.edit()
        values = await draft.__aenter__()
        await (await other.get("ada", "s1")).set("a", 3)
        values["a"] = 4
        with pytest.raises(StaleSessionError):
            await draft.__aexit__(None, None, None)
    before = await vitals.read()
    assert before.conflicts == 2
    await settle(small_urls)
    await small_cache.get("ada", "s1")
    await small_cache.get("ada", "s1")
    after = await vitals.read()
    assert after.conflicts == 2
    assert after.hydrates - before.hydrates == 3, "the session, its user's scope, its app's scope"


async def test_of_many_dirty_scopes_a_sample_is_counted_and_the_rest_estimated(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    for first in range(0, 600, 100):
        names = [f"s{number}" for number in range(first, first + 100)]
        await asyncio.gather(*(small_cache.create("ada", session_id=name, state={"a": 1, "b": 2}) for name in names))
    pulse = await vitals.read()
    assert (pulse.dirty_scopes, pulse.dirty_entries, pulse.exact) == (600, 1_200, False)
    counted = await vitals.read(sample=1_000)
    assert (counted.dirty_entries, counted.exact) == (1_200, True)
    evict(small_urls.redis)


async def test_what_else_the_control_holds_makes_no_counter_invisible(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    made = await small_cache.create("ada", session_id="s1", state={"a": 1})
    await conflict(made)
    await drain(small_urls)
    control = LAYOUT.control(session("ada", "s1").bucket)
    before = await vitals.read()
    leases: dict[Any, Any] = {f"l:s{number:032x}": "incarnation|birth|token|1" for number in range(2_000)}
    with raw(small_urls.redis) as client:
        client.hset(control, mapping=leases)
        client.hset(LAYOUT.control(0), mapping=leases)
        client.hset(LAYOUT.control(0), "w:one", f"{client.time()[0]}000000|{{}}")
    after = await vitals.read()
    assert (after.rows, after.lags, after.conflicts) == (before.rows, before.lags, 1)
    assert [worker.name for worker in after.workers] == ["one"]


async def test_workers_are_known_by_name_place_and_the_age_of_their_heartbeat(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    async with open_worker(small_urls) as worker:
        await worker._tiers.backlog.beat("here", '{"host": "h1", "pid": 7}')
        with raw(small_urls.redis) as client:
            long_ago = int(client.time()[0]) - 100
            client.hset(LAYOUT.control(0), "w:silent", f"{long_ago}000000|{{}}")
        here, silent = (await vitals.read()).workers
    assert (here.name, here.host, here.pid, here.alive) == ("here", "h1", 7, True)
    assert 0 <= here.age < SILENT
    assert (silent.name, silent.host, silent.pid, silent.alive) == ("silent", "", None, False)
    assert 99 < silent.age < 150


async def test_dead_letters_are_counted_and_are_neither_dirty_nor_old(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    refuse_poison(small_urls.database)
    await small_cache.create("ada", session_id="bad", state={"poison": 1, "beside": 2})
    await drain(small_urls)
    pulse = await vitals.read()
    assert (pulse.dead_letters, pulse.dirty_scopes, pulse.oldest_age) == (1, 0, None)
    queue = DeadLetterQueue(small_cache._tiers)
    assert await queue.retry((await queue.list())[0].id)
    pulse = await vitals.read()
    assert (pulse.dead_letters, pulse.dirty_scopes) == (1, 1), "while it is retried"


async def test_reading_vitals_changes_nothing(small_urls: Urls, small_cache: SessionCache, vitals: Metrics) -> None:
    await small_cache.create("ada", session_id="s1", state={"a": 1})
    with raw(small_urls.redis) as client:
        before = read_dump(client)
        client.config_resetstat()
        await vitals.read()
        assert read_dump(client) == before
        calls = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert calls.isdisjoint({"hset", "hincrby", "hdel", "zadd", "zrem", "sadd", "srem", "pexpire", "persist", "set"})


async def test_vitals_are_read_when_memory_is_full(start_redis: StartRedis, sqlite_url: str) -> None:
    server = start_redis("valkey")
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url)) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        with server.client() as client:
            client.config_set("maxmemory", 1)
            client.script_flush()
        with pytest.raises(MemoryFullError):
            await made.set("a", 2)
        assert (await read(server.url)).dirty_scopes == 1


async def test_counters_begin_again_where_redis_forgot_them(
    small_urls: Urls, small_cache: SessionCache, vitals: Metrics
) -> None:
    await small_cache.create("ada", session_id="s1", state={"a": 1})
    await drain(small_urls)
    assert (await vitals.read()).rows == 1
    with raw(small_urls.redis) as client:
        client.flushall()
    assert (await vitals.read()).rows == 0


async def read(url: str) -> Sample:
    """The vitals behind a URL."""
    link = HotClient.from_url(url)
    try:
        return await Metrics(link, LAYOUT).read()
    finally:
        await link.aclose()


def test_a_worker_counts_as_gone_after_thirty_silent_seconds() -> None:
    assert WorkerSample("w", "", None, SILENT - 0.1).alive
    assert not WorkerSample("w", "", None, SILENT).alive
