"""flush() tells the truth (R11)."""

from __future__ import annotations

import asyncio

import pytest

from sessioncache import FlushTimeoutError
from tests.helpers import Urls, app, connect, drain, evict, session, start_worker, stored_values, user
from tests.races.locks import locked_row
from tests.waiting import stretched


async def test_r11_when_flush_returns_the_rows_are_in_sql(urls: Urls) -> None:
    with start_worker(urls, "--flush-delay", "5"):
        async with connect(urls) as cache:
            made = await cache.create("ada", session_id="s1")
            for number in range(20):
                await made.update({"a": number, "user:u": number, "app:p": number, "temp:t": number})
                await made.flush(60)
                assert stored_values(urls.database, session("ada", "s1")) == {"a": number}
                assert stored_values(urls.database, user("ada")) == {"u": number}
                assert stored_values(urls.database, app()) == {"p": number}


async def test_r11_a_flush_does_not_wait_for_the_flush_delay(urls: Urls) -> None:
    with start_worker(urls, "--flush-delay", "60"):
        async with connect(urls) as cache:
            made = await cache.create("ada")
            await made.flush(60)
            await made.set("a", 1)
            async with asyncio.timeout(stretched(5)):
                await made.flush(60)


async def test_r11_a_flush_of_all_that_the_cache_wrote(urls: Urls) -> None:
    with start_worker(urls, "--flush-delay", "5"):
        async with connect(urls) as cache:
            for number in range(300):
                await cache.create(f"u{number}", session_id="s", state={"n": number})
            await cache.delete("u0", "s")
            await cache.app_scope().set("p", 1)
            await cache.flush(60)
    assert stored_values(urls.database, session("u0", "s")) is None
    for number in range(1, 300):
        assert stored_values(urls.database, session(f"u{number}", "s")) == {"n": number}
    assert stored_values(urls.database, app()) == {"p": 1}


async def test_r11_a_time_out_says_that_no_worker_is_alive(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1")
        with pytest.raises(FlushTimeoutError, match="no worker is alive"):
            await made.flush(0.3)
        assert stored_values(urls.database, session("ada", "s1")) is None
        await drain(urls)
        await made.flush(0.3)


async def test_r11_a_time_out_beside_a_living_worker_does_not_blame_it(pg_urls: Urls) -> None:
    with start_worker(pg_urls, "--flush-delay", "0.05"):
        async with connect(pg_urls) as cache:
            made = await cache.create("ada", session_id="s1", state={"a": 0})
            await made.flush(60)
            with locked_row(pg_urls):
                await made.set("a", 1)
                with pytest.raises(FlushTimeoutError) as told:
                    await made.flush(0.5)
            assert "worker" not in str(told.value)
            await made.flush(20)


async def test_r11_evidence_is_found_after_the_clean_hash_was_evicted(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1})
        await made.set("b", "x" * 1_000)
        await made.delete("a")
        await drain(urls)
        assert evict(urls.redis) > 0
        await made.flush(60)
        await cache.create("ada", session_id="doomed")
        await drain(urls)
        await cache.delete("ada", "doomed")
        await drain(urls)
        evict(urls.redis)
        await cache.flush(60)


async def test_r11_a_newer_write_of_another_process_is_evidence_too(urls: Urls) -> None:
    async with connect(urls) as one, connect(urls) as two:
        made = await one.create("ada", session_id="s1", state={"a": 1})
        await (await two.get("ada", "s1")).set("a", 2)
        await drain(urls)
        evict(urls.redis)
        await made.flush(60)


async def test_r11_a_deletion_elsewhere_is_evidence_once_it_is_flushed(urls: Urls) -> None:
    async with connect(urls) as one, connect(urls) as two:
        made = await one.create("ada", session_id="s1", state={"a": 1})
        await two.delete("ada", "s1")
        with pytest.raises(FlushTimeoutError):
            await made.flush(0.5)
        await drain(urls)
        await made.flush(1)


async def test_r11_a_flush_never_takes_the_absence_of_dirt_for_evidence(urls: Urls) -> None:
    with start_worker(urls, "--flush-delay", "0.01"):
        async with connect(urls) as cache:
            handles = await asyncio.gather(*(cache.create("ada", state={"n": n}) for n in range(50)))

            async def check(number: int) -> None:
                await handles[number].flush(60)
                assert stored_values(urls.database, session("ada", handles[number].id)) == {"n": number}

            await asyncio.gather(*map(check, range(50)))
