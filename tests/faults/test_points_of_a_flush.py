"""A worker dies or stands still at each point of a flush: nothing is lost, nothing older comes back (R7-R9)."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.faults.failing_worker import POINTS
from tests.helpers import (
    Process,
    Urls,
    app,
    connect,
    dirty,
    evict,
    head_row,
    session,
    start_worker,
    stored_values,
    user,
)
from tests.waiting import wait_until_async

LEASE = 1.0
START = 5.0
"""Seconds that starting a Python process may take on a busy machine."""
OPTIONS = ("--flush-delay", "0.05", "--lease", f"{LEASE:g}")
OLD = {"a": "old", "kept": 1, "user:u": "old", "app:p": "old"} | {f"k{number}": number for number in range(1_100)}
"""More keys than one script acknowledges."""
NEW = {"a": "new", "user:u": "new", "app:p": "new"}


def failing_worker(urls: Urls, point: str, how: str) -> Process:
    """A worker process that fails at a point."""
    tiers = ("--redis", urls.redis, "--database", urls.database)
    return Process("tests.faults.failing_worker", *tiers, *OPTIONS, env={"FAIL_AT": point, "FAIL_BY": how})


async def state_cold(urls: Urls) -> dict[str, object]:
    """The session's state, loaded from SQL."""
    evict(urls.redis)
    async with connect(urls) as cache:
        return dict((await cache.get("ada", "s1")).state)


def stored(urls: Urls) -> dict[str, object]:
    """The same, from the rows."""
    private = stored_values(urls.database, session("ada", "s1")) or {}
    shared = {f"user:{key}": value for key, value in (stored_values(urls.database, user("ada")) or {}).items()}
    of_app = {f"app:{key}": value for key, value in (stored_values(urls.database, app()) or {}).items()}
    return private | shared | of_app


@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_at_a_point_loses_nothing_and_is_overtaken_within_its_lease(
    urls: Urls, point: str
) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state=OLD)
        with failing_worker(urls, point, "SIGKILL") as doomed:
            assert await asyncio.to_thread(doomed.wait) == -signal.SIGKILL
        with start_worker(urls, *OPTIONS):
            await made.flush(60)
            await taken_over(urls)
    assert stored(urls) == OLD
    assert await state_cold(urls) == OLD
    assert dirty(urls.redis) == 0


@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_that_stood_still_at_a_point_brings_nothing_older_back(urls: Urls, point: str) -> None:
    if point == "written" and urls.database.startswith("sqlite"):
        pytest.skip("SQLite has no time-out that takes the lock from a process that stands still (R9)")
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state=OLD)
        with failing_worker(urls, point, "SIGSTOP") as stopped:
            await asyncio.to_thread(stopped.wait_until_stopped)
            await made.update(NEW)
            with start_worker(urls, *OPTIONS):
                await made.flush(60)
                await taken_over(urls)
                await go_on(stopped)
        assert stored(urls) == OLD | NEW
        assert dict((await cache.get("ada", "s1")).state) == OLD | NEW
    assert await state_cold(urls) == OLD | NEW
    assert dirty(urls.redis) == 0


@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_that_stood_still_at_a_point_brings_no_deleted_session_back(urls: Urls, point: str) -> None:
    if point == "written" and urls.database.startswith("sqlite"):
        pytest.skip("SQLite has no time-out that takes the lock from a process that stands still (R9)")
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state=OLD)
        with failing_worker(urls, point, "SIGSTOP") as stopped:
            await asyncio.to_thread(stopped.wait_until_stopped)
            await cache.delete("ada", "s1")
            with start_worker(urls, *OPTIONS):
                await cache.flush(60)
                await taken_over(urls)
                await go_on(stopped)
        row = head_row(urls.database, session("ada", "s1"))
        assert row is not None
        assert row[2], "the head in SQL is a tombstone"
        with pytest.raises(LookupError):
            await cache.get("ada", "s1")
    with pytest.raises(LookupError):
        await state_cold(urls)
    assert dirty(urls.redis) == 0


async def taken_over(urls: Urls) -> None:
    """Another worker settles everything within the lease; starting its process comes on top."""
    await wait_until_async(lambda: dirty(urls.redis) == 0, LEASE + START, "another worker has taken over")


async def go_on(stopped: Process) -> None:
    """Let a stopped worker finish what it had in hand."""
    stopped.send(signal.SIGTERM)
    stopped.send(signal.SIGCONT)
    code, _, err = await asyncio.to_thread(stopped.finish, 30)
    assert code == 0, err
