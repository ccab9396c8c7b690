"""Scopes that many want at once are read together, and each caller is answered for itself (R12, R13)."""

from __future__ import annotations

import asyncio
import time

import pytest

from sessioncache import DurableTierUnavailableError, SessionCache
from sessioncache.coordination.read_coalescing import ReadCoalescing
from sessioncache.durable.messages import FencedOff
from sessioncache.primitives.deadline import within
from sessioncache.primitives.scopes import ScopeRef
from tests.helpers import Stall, Urls, drain, evict, execute, session
from tests.waiting import stretched, wait_until_async


@pytest.fixture
async def cold(small_cache: SessionCache, small_urls: Urls) -> SessionCache:
    """A cache over forty sessions that are in SQL only."""
    await asyncio.gather(*(small_cache.create(f"u{n}", session_id=f"s{n}", state={"n": n}) for n in range(40)))
    await drain(small_urls)
    evict(small_urls.redis)
    return small_cache


async def current(cache: SessionCache, scope: ScopeRef) -> str:
    """The incarnation that the fence of a scope's bucket names."""
    return (await cache._tiers.durable.read_fences([scope.bucket]))[scope.bucket]


async def test_many_cold_sessions_take_few_transactions(cold: SessionCache) -> None:
    sizes: list[int] = []
    inner = cold._tiers.durable.read_scopes

    async def counted(wanted: list[object]) -> object:
        sizes.append(len(wanted))
        return await inner(wanted)  # type: ignore[arg-type]

    cold._tiers.durable.read_scopes = counted  # type: ignore[assignment, method-assign]
    found = await asyncio.gather(*(cold.get(f"u{n}", f"s{n}") for n in range(40)))
    assert [one.state["n"] for one in found] == list(range(40))
    assert len(sizes) <= 12
    assert max(sizes) <= 32


async def test_who_comes_under_an_older_incarnation_is_fenced_off_alone(cold: SessionCache) -> None:
    readings = ReadCoalescing(cold._tiers.durable)
    scopes = [session(f"u{n}", f"s{n}") for n in range(3)]
    incarnations = [await current(cold, scope) for scope in scopes]
    incarnations[1] = "another"
    calls = [readings.read(scope, inc) for scope, inc in zip(scopes, incarnations, strict=True)]
    one, fenced, two = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(fenced, FencedOff)
    assert fenced.buckets == {scopes[1].bucket}
    assert not isinstance(one, BaseException)
    assert not isinstance(two, BaseException)
    assert one is not None
    assert two is not None
    assert [[entry.key for entry in found.entries] for found in (one, two)] == [["n"], ["n"]]


async def test_a_damaged_row_concerns_its_own_session_only(cold: SessionCache, small_urls: Urls) -> None:
    execute(
        small_urls.database,
        "UPDATE sessioncache_state SET value = X'00' WHERE scope_id = ?",
        session("u7", "s7").id,
    )
    found = await asyncio.gather(*(cold.get(f"u{n}", f"s{n}") for n in range(40)), return_exceptions=True)
    assert [n for n, one in enumerate(found) if isinstance(one, BaseException)] == [7]


async def test_each_caller_gives_up_at_its_own_deadline(cold: SessionCache) -> None:
    readings, stall = ReadCoalescing(cold._tiers.durable), Stall(cold._tiers.durable, "read_scopes")
    incarnation = await current(cold, session("u0", "s0"))

    async def read(seconds: float) -> object:
        with within(seconds):
            return await readings.read(session("u0", "s0"), incarnation)

    began = time.monotonic()
    hasty, patient = asyncio.ensure_future(read(0.1)), asyncio.ensure_future(read(20))
    with pytest.raises(DurableTierUnavailableError):
        await asyncio.wait_for(hasty, stretched(10))
    assert time.monotonic() - began < stretched(5)
    assert not patient.done()
    stall.release.set()
    assert await patient is not None


async def test_a_caller_that_is_cancelled_takes_nobody_along(cold: SessionCache) -> None:
    readings, stall = ReadCoalescing(cold._tiers.durable), Stall(cold._tiers.durable, "read_scopes")
    incarnation = await current(cold, session("u0", "s0"))
    calls = [asyncio.ensure_future(readings.read(session("u0", "s0"), incarnation)) for _ in range(2)]
    await stall.reached.wait()
    calls[0].cancel()
    await asyncio.wait([calls[0]])
    stall.release.set()
    assert await calls[1] is not None


async def test_who_asks_just_when_all_transactions_have_ended_is_read_too() -> None:
    begun, go = 0, asyncio.Event()

    class Tier:
        async def read_scopes(self, wanted: list[object]) -> list[None]:
            nonlocal begun
            begun += 1
            await go.wait()
            return [None] * len(wanted)

    readings = ReadCoalescing(Tier())  # type: ignore[arg-type]

    async def twice() -> None:
        await readings.read(session("u", "s"), "inc")
        await readings.read(session("u", "s"), "inc")

    with within(2):
        calls = [asyncio.ensure_future(twice())]
        for count in range(1, 5):
            await wait_until_async(lambda count=count: begun >= count, 5, "a transaction has begun")
            if count < 4:
                calls.append(asyncio.ensure_future(readings.read(session("u", "s"), "inc")))  # type: ignore[arg-type]
        go.set()
        await asyncio.gather(*calls)
