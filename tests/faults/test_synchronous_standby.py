"""A commit that waits for a synchronous standby is not durable, and nothing of ours makes it look so (R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sessioncache import FlushTimeoutError
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.primitives.deadline import within
from tests.conftest import StartPostgreSQL, StartRedis
from tests.durable_helpers import INCARNATION, dirt, open_tier, put, session, values_of
from tests.helpers import Urls, connect, execute, fetch, open_worker, upgrade
from tests.servers import PostgreSQLServer
from tests.waiting import stretched, wait_until_async

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

GiveUp = Callable[["asyncio.Task[object]"], Awaitable[object]]


def lose_standby(server: PostgreSQLServer) -> None:
    """From now on every commit waits for a standby that is not there."""
    _replicate_to(server, "standby")


def find_standby(server: PostgreSQLServer) -> None:
    """Let the commits go that wait."""
    _replicate_to(server, "")


def _replicate_to(server: PostgreSQLServer, names: str) -> None:
    execute(server.url(), f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    execute(server.url(), "SELECT pg_reload_conf()")


async def commits_wait(server: PostgreSQLServer, number: int = 1) -> None:
    """Wait until so many commits wait for the standby."""
    await wait_until_async(lambda: fetch(server.url(), WAITING) == [(number,)], 20, f"{number} commits wait")


def was_cancelled(server: PostgreSQLServer) -> bool:
    """Whether somebody cancelled the wait of a commit."""
    return "canceling wait for synchronous replication" in server.log.read_text()


async def cancel(task: asyncio.Task[object]) -> None:
    """Cancel the call."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_twice(task: asyncio.Task[object]) -> None:
    """Cancel the call, and again before it has ended."""
    task.cancel()
    await asyncio.sleep(0)
    await cancel(task)


async def cancel_all(_: asyncio.Task[object]) -> None:
    """Cancel every task, as the end of an event loop does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*others, return_exceptions=True))


async def run_out_of_time(task: asyncio.Task[object]) -> None:
    """Wait until the server has been silent for too long."""
    with pytest.raises(DurableTierUnavailableError, match="did not answer in time"):
        await task


@pytest.mark.parametrize("give_up", [cancel, cancel_twice, cancel_all, run_out_of_time])
async def test_r11_a_commit_that_waits_for_a_standby_is_left_and_not_cancelled(
    start_postgresql: StartPostgreSQL, give_up: GiveUp
) -> None:
    server = start_postgresql()
    async with open_tier(server.url(), lock_timeout=1.0) as tier:
        await put(tier, dirt(session(), 1, {"a": b"1"}))
        clock = await tier.clock()
        lose_standby(server)
        task = asyncio.ensure_future(tier.flush([dirt(session(), 2, {"a": b"2"})], read_after=clock))
        await commits_wait(server)
        await give_up(task)
        await commits_wait(server)
        assert await values_of(tier, session()) == {"a": b"1"}
        find_standby(server)
        await commits_wait(server, 0)
        assert await values_of(tier, session()) == {"a": b"2"}
        assert not was_cancelled(server)


async def test_r11_an_agent_that_runs_out_of_time_leaves_its_commit_to_the_server(
    start_postgresql: StartPostgreSQL,
) -> None:
    server = start_postgresql()
    async with open_tier(server.url()) as tier:
        lose_standby(server)
        with pytest.raises(DurableTierUnavailableError, match="did not answer in time"), within(0.5):
            await tier.swap_fences({1: (INCARNATION, "second")})
        await commits_wait(server)
        assert await tier.read_fences([1]) == {1: INCARNATION}
        assert not was_cancelled(server)
        find_standby(server)
        await commits_wait(server, 0)
        assert await tier.read_fences([1]) == {1: "second"}


async def test_r11_a_worker_that_ends_amid_a_commit_makes_nothing_look_durable(
    start_redis: StartRedis, start_postgresql: StartPostgreSQL
) -> None:
    server = start_postgresql()
    urls = Urls(start_redis().url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        async with open_worker(urls, flush_delay=0.05, grace=1.0, lease=60) as worker:
            task = asyncio.ensure_future(worker.run())
            await made.flush(stretched(20))
            lose_standby(server)
            await made.set("a", 2)
            await commits_wait(server)
            worker.stop()
            await task
            assert worker.unfinished
        with pytest.raises(FlushTimeoutError):
            await made.flush(0.5)
        await commits_wait(server)
        assert not was_cancelled(server)
        find_standby(server)
        async with open_worker(urls) as other:
            await other.flush_once()
        await made.flush(stretched(20))
