"""R17: a bucket whose fence another transaction holds in SQL keeps no other bucket from being registered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from sessioncache import DurableTierUnavailableError, SessionCache
from sessioncache.primitives.deadline import within
from sessioncache.primitives.outages import SQL
from tests.helpers import Urls, connect, drain, execute, open_worker, raw, session, stored_values
from tests.races.locks import waiters
from tests.waiting import wait_until_async
from tests.worker.test_outages import running


@contextmanager
def locked_fence(urls: Urls, bucket: int, how: str = "UPDATE") -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Hold the fence of a bucket."""
    with psycopg.connect(urls.database) as holder:
        holder.execute("SELECT 1 FROM sessioncache_fence WHERE bucket = %s FOR " + how, [bucket])
        yield holder
        holder.rollback()


async def forget(cache: SessionCache, urls: Urls) -> tuple[int, int]:
    """Let Redis forget everything of two sessions in different buckets; these buckets."""
    for user in ("ada", "bob"):
        await cache.create(user, session_id="s1", state={"a": 1})
    await drain(urls)
    with raw(urls.redis) as client:
        client.flushall()
    held, free = session("ada", "s1").bucket, session("bob", "s1").bucket
    assert held != free
    return held, free


async def test_r17_a_fence_that_is_held_stops_only_its_own_bucket(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        held, free = await forget(cache, pg_urls)
        fencing = cache._tiers.fencing
        with locked_fence(pg_urls, held):
            stuck = asyncio.create_task(fencing.register([held, free]))
            await wait_until_async(lambda: waiters(pg_urls) == 1, 20, "the other one is waited for")
            assert set(await fencing._incarnations.registered([held, free])) == {free}
            assert (await cache.get("bob", "s1")).state["a"] == 1
            with within(0.2), pytest.raises(DurableTierUnavailableError, match="sessioncache_fence"):
                await fencing.register([held])
            assert not stuck.done()
        await stuck
        assert (await cache.get("ada", "s1")).state["a"] == 1


async def test_r17_a_fence_that_is_held_keeps_no_worker_from_the_other_buckets(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        held, _ = await forget(cache, pg_urls)
        handle = await cache.get("bob", "s1")
        other = await cache.get("ada", "s1")
        await other.set("a", 2)
        with raw(pg_urls.redis) as client:  # a bucket that SQL does not know, with work in it
            client.hset(cache._tiers.layout.control(held), "registered", "0")
        with locked_fence(pg_urls, held) as holder:
            async with running(pg_urls) as worker:
                await wait_until_async(lambda: waiters(pg_urls) == 1, 20, "the worker registers the bucket")
                await handle.set("a", 3)
                await handle.flush(20)
                await wait_until_async(lambda: worker._registration.is_stuck, 20, "the try failed")
                await handle.set("a", 4)
                await handle.flush(20)
                assert SQL in worker._outages, "some of it is away still"
                holder.rollback()
                await wait_until_async(lambda: not worker._registration.is_stuck, 20, "the bucket is registered")
                await other.flush(20)
                await wait_until_async(lambda: SQL not in worker._outages, 20, "all is back")
    assert stored_values(pg_urls.database, session("bob", "s1")) == {"a": 4}
    assert stored_values(pg_urls.database, session("ada", "s1")) == {"a": 2}


async def test_r10_what_was_claimed_is_flushed_before_a_fence_that_is_held_is_told(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        held, _ = await forget(cache, pg_urls)
        await (await cache.get("bob", "s1")).set("a", 2)
        with raw(pg_urls.redis) as client:
            client.hset(cache._tiers.layout.control(held), "registered", "0")
        async with open_worker(pg_urls, lease=2.0) as worker:
            with locked_fence(pg_urls, held), pytest.raises(DurableTierUnavailableError):
                await worker.flush_once()
            assert stored_values(pg_urls.database, session("bob", "s1")) == {"a": 2}
            await worker.flush_once()


async def test_r10_a_fence_that_moved_and_is_held_keeps_no_other_scope_of_the_batch(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        held, _ = await forget(cache, pg_urls)
        for user in ("ada", "bob"):
            await (await cache.get(user, "s1")).set("a", 2)
        execute(pg_urls.database, "UPDATE sessioncache_fence SET incarnation = 'another' WHERE bucket = ?", held)
        async with open_worker(pg_urls, lease=2.0) as worker:
            await worker._check()
            with locked_fence(pg_urls, held, "SHARE"):
                claimed = await worker._claim(list(worker._buckets), everything=True)
                await asyncio.wait_for(worker._flush(claimed), 20)
                assert waiters(pg_urls) == 0
                with raw(pg_urls.redis) as client:
                    bob = session("bob", "s1")
                    assert not client.exists(f"sessioncache:{{{bob.bucket}}}:d:{bob.member}"), "acknowledged"
            await worker.flush_once()
    assert stored_values(pg_urls.database, session("ada", "s1")) == {"a": 2}


async def test_r17_a_row_that_another_transaction_inserts_stops_no_other_bucket(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        held, free = await forget(cache, pg_urls)
        execute(pg_urls.database, "DELETE FROM sessioncache_fence WHERE bucket = ?", held)
        fencing = cache._tiers.fencing
        with psycopg.connect(pg_urls.database) as other:
            other.execute("INSERT INTO sessioncache_fence VALUES (%s, 'another', now())", [held])
            stuck = asyncio.create_task(fencing.register([held, free]))
            await wait_until_async(lambda: waiters(pg_urls) == 1, 20, "the row is waited for")
            assert set(await fencing._incarnations.registered([held, free])) == {free}
            other.rollback()
        await stuck
