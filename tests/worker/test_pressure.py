"""R18: dirt is bounded; above a limit writes are refused or wait, deletes and reads go on."""

from __future__ import annotations

import asyncio
import time

import pytest

from sessioncache import BackPressureError, Session, SessionCache
from tests.helpers import Urls, connect, drain, evict, raw
from tests.waiting import stretched, wait_until_async


async def fill(cache: SessionCache, number: int) -> list[Session]:
    """Dirty sessions that no worker flushes."""
    return [await cache.create("ada", session_id=f"s{one}") for one in range(number)]


async def until_refused(session: Session) -> BackPressureError:
    """Write until the limit is noticed: a measurement serves for a second."""
    refusal: list[BackPressureError] = []

    async def refused() -> bool:
        try:
            await session.set("a", 1)
        except BackPressureError as error:
            refusal.append(error)
        return bool(refusal)

    await wait_until_async(refused, 5, "writes are refused")
    return refusal[0]


async def test_r18_too_many_dirty_scopes_refuse_writes_and_creates_and_nothing_is_written(small_urls: Urls) -> None:
    async with connect(small_urls, max_dirty=5) as cache:
        first, *_ = await fill(cache, 5)
        error = await until_refused(first)
        assert error.dirty >= 5
        with pytest.raises(BackPressureError):
            await cache.create("ada", session_id="more")
        with pytest.raises(BackPressureError):
            await cache.app_scope().increment("n")
        assert len((await cache.list("ada")).items) == 5
        await drain(small_urls)

        async def admitted() -> bool:
            try:
                await first.set("b", 1)
            except BackPressureError:
                return False
            return True

        await wait_until_async(admitted, 5, "writes are let in again once SQL has caught up")
        await drain(small_urls)


async def test_r18_dirt_that_waits_too_long_refuses_writes(small_urls: Urls) -> None:
    async with connect(small_urls, max_dirty_age=0.5) as cache:
        (made,) = await fill(cache, 1)
        error = await until_refused(made)
        assert error.oldest_age >= 0.5
        assert error.dirty == 1
        await drain(small_urls)


async def test_r18_deletes_and_reads_are_let_in_above_the_limit(small_urls: Urls) -> None:
    async with connect(small_urls, max_dirty=3) as cache:
        made = await fill(cache, 3)
        await until_refused(made[0])
        assert await made[1].get("a") is None
        assert await made[1].delete("a") is False
        assert await cache.delete("ada", "s2") is True
        assert {one.id for one in (await cache.list("ada")).items} == {"s0", "s1"}
        await drain(small_urls)


async def test_r18_a_cold_session_can_be_deleted_above_the_limit(small_urls: Urls) -> None:
    async with connect(small_urls, max_dirty=3) as cache:
        await cache.create("ada", session_id="cold")
        await drain(small_urls)
        evict(small_urls.redis)
        made = await fill(cache, 3)
        await until_refused(made[0])
        assert await cache.delete("ada", "cold") is True
        await drain(small_urls)


async def test_r18_waiting_writes_go_on_as_soon_as_a_worker_catches_up(small_urls: Urls) -> None:
    async with connect(small_urls, max_dirty=3, on_full="wait", timeout=20) as cache:
        made = await fill(cache, 3)
        writing = asyncio.ensure_future(_write_on(made[0]))
        done, _ = await asyncio.wait({writing}, timeout=3)
        assert not done, "it waits, since no worker is alive"
        before = await made[0].get("n")
        await drain(small_urls)
        await asyncio.wait_for(_higher(made[0], before), stretched(15))
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await drain(small_urls)


async def _write_on(session: Session) -> None:
    while True:
        await session.increment("n")


async def _higher(session: Session, before: int) -> None:
    async def higher() -> bool:
        return bool(await session.get("n") > before)

    await wait_until_async(higher, 15, "the writer goes on")


async def test_r18_a_write_that_waits_in_vain_is_refused_at_its_time_out(small_urls: Urls) -> None:
    async with connect(small_urls, max_dirty=3, on_full="wait", timeout=2) as cache:
        made = await fill(cache, 3)
        began = time.monotonic()
        error = await until_refused(made[0])
        assert error.dirty == 3
        assert time.monotonic() - began > 1.5
        assert await made[0].get("a") in (None, 1)
        await drain(small_urls)


async def test_r18_one_process_of_a_fleet_measures_for_all(small_urls: Urls) -> None:
    async with connect(small_urls) as one, connect(small_urls) as two:
        with raw(small_urls.redis) as client:
            client.config_resetstat()
            for cache in (one, two):
                await cache.create("ada", session_id=f"of{id(cache)}")
            assert client.info("commandstats")["cmdstat_zcard"]["calls"] < 2 * 256
        await drain(small_urls)
