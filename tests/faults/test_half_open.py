"""Connections that lost their server without being told, while new ones work (R10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sessioncache.durable import tier as durable
from sessioncache.durable.tier import DurableTier
from sessioncache.durable.transactions import abandonable, reading
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.primitives.deadline import within
from tests.chaos.wire import Wire
from tests.conftest import StartPostgreSQL
from tests.durable_helpers import dirt, open_tier, put, session, values_of
from tests.servers import PostgreSQLServer
from tests.waiting import stretched

POOLED = 4


async def fill(engine: AsyncEngine) -> None:
    """Let the pool have some connections that nobody uses."""
    async with AsyncExitStack() as stack:
        for _ in range(POOLED):
            await stack.enter_async_context(engine.connect())


def through(wire: Wire) -> str:
    """The URL of the database behind a wire."""
    return f"postgresql+psycopg://postgres@127.0.0.1:{wire.port}/postgres"


@asynccontextmanager
async def wired(server: PostgreSQLServer) -> AsyncIterator[Wire]:
    """A server behind a wire, with the tier's schema."""
    async with open_tier(server.url()), Wire(server.folder / ".s.PGSQL.5432") as wire:
        yield wire


async def read(tier: DurableTier) -> object:
    """Read, for less time than a caller has."""
    with within(stretched(0.5)):
        return await tier.read_layout()


async def clock(tier: DurableTier) -> object:
    """Read the clock, whatever time the caller has."""
    with within(600):
        return await tier.clock()


async def flush(tier: DurableTier) -> object:
    """Flush what was read just now."""
    return await tier.flush([dirt(session(), 2, {"a": b"2"})], read_after=2**62)


async def purge(tier: DurableTier) -> object:
    """Write outside of any call that has an end."""
    return await tier.purge(10)


@pytest.mark.parametrize("call", [read, clock, flush, purge])
async def test_r10_one_call_shows_that_the_connections_are_dead_and_the_next_uses_a_new_one(
    start_postgresql: StartPostgreSQL, monkeypatch: pytest.MonkeyPatch, call: Callable[[DurableTier], Awaitable[object]]
) -> None:
    monkeypatch.setattr(durable, "_DOUBTFUL", 0.1)
    monkeypatch.setattr(durable, "_PATIENCE", 600)
    async with wired(start_postgresql()) as wire:
        tier = DurableTier.connect(through(wire), lock_timeout=0.5)
        await fill(tier.engine)
        wire.half_open()
        async with asyncio.timeout(stretched(10)):
            with pytest.raises(DurableTierUnavailableError, match="did not answer in time"):
                await call(tier)
            await call(tier)
        await tier.aclose()


async def test_r10_the_pool_of_a_callers_engine_is_doubted_and_what_it_is_used_for_goes_on(
    start_postgresql: StartPostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_DOUBTFUL", 0.1)
    async with wired(start_postgresql()) as wire:
        engine = create_async_engine(through(wire))
        tier = DurableTier(engine)
        await fill(engine)
        wire.half_open()
        async with AsyncExitStack() as stack:
            dead = [await stack.enter_async_context(engine.connect()) for _ in range(POOLED)]
            callers = await stack.enter_async_context(engine.connect())  # a new one
            number = (await callers.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            await dead[0].close()
            with pytest.raises(DurableTierUnavailableError, match="did not answer in time"):
                await read(tier)
            await dead[1].close()
            await read(tier)
            assert (await callers.execute(text("SELECT pg_backend_pid()"))).scalar_one() == number
        await engine.dispose()


async def test_r10_a_database_that_is_slow_is_not_made_slower_by_connecting_anew_all_the_time(
    start_postgresql: StartPostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_DOUBTFUL", 0.0)
    async with open_tier(start_postgresql().url()) as tier:
        await put(tier, dirt(session(), 1, {"a": b"1"}))
        numbers = [await _backend(tier) for _ in range(2)]
        for _ in range(3):
            await values_of(tier, session())
            numbers.append(await _backend(tier))
        assert len(set(numbers[1:])) == 1


async def test_a_reading_that_was_answered_takes_as_long_as_it_does(start_postgresql: StartPostgreSQL) -> None:
    async with open_tier(start_postgresql().url()) as tier:

        async def work() -> None:
            async with reading(tier.engine) as connection:
                await connection.execute(text("SELECT 1"))
                await connection.execute(text("SELECT pg_sleep(2.5)"))

        with within(600):
            await abandonable(work(), 2.0)


async def _backend(tier: DurableTier) -> int:
    """What the server calls the connection that is next."""
    async with tier.engine.connect() as connection:
        return int((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())
