"""An older value never comes back: held row locks, stopped workers, killed workers (R6 to R9)."""

from __future__ import annotations

import signal

import pytest

from tests.helpers import (
    Urls,
    claims,
    connect,
    dirty,
    drain,
    evict,
    session,
    start_stopping_worker,
    start_worker,
    stop_worker,
    stored_values,
)
from tests.races.locks import locked_row, waiters
from tests.waiting import wait_until, wait_until_async

LEASE = "1"


def value(urls: Urls) -> object:
    """What SQL has of the session's key ``a``."""
    return (stored_values(urls.database, session("ada", "s1")) or {}).get("a")


async def test_r8_a_value_set_while_its_older_one_waits_for_a_lock_is_the_one_in_sql_in_the_end(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        await drain(pg_urls)
        with start_worker(pg_urls, "--flush-delay", "0.02") as worker:
            with locked_row(pg_urls):
                await made.set("a", 1)
                wait_until(lambda: waiters(pg_urls) > 0, 10, "the worker waits for the row")
                await made.set("a", 2)
            await made.flush(60)
            assert value(pg_urls) == 2
            stop_worker(pg_urls, worker)
    assert dirty(pg_urls.redis) == 0


async def test_r9_a_worker_stopped_in_its_transaction_brings_nothing_back(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        await drain(pg_urls)
        with start_worker(pg_urls, "--lease", LEASE, "--flush-delay", "0.02") as stopped:
            with locked_row(pg_urls):
                await made.set("a", 1)
                wait_until(lambda: waiters(pg_urls) > 0, 10, "the worker waits for the row, inside its transaction")
                stopped.send(signal.SIGSTOP)
                stopped.wait_until_stopped()
                await made.set("a", 2)
            with start_worker(pg_urls, "--lease", LEASE, "--flush-delay", "0.02") as other:
                await made.flush(60)
                assert value(pg_urls) == 2
                stopped.send(signal.SIGCONT)
                await made.set("b", 1)
                await made.flush(60)
                stop_worker(pg_urls, other)
            stop_worker(pg_urls, stopped)
    assert value(pg_urls) == 2
    assert dirty(pg_urls.redis) == 0
    await reads_cold(pg_urls, {"a": 2, "b": 1})


@pytest.mark.parametrize("point", ["claimed", "read", "committed"])
async def test_r7_a_worker_stopped_with_older_dirt_in_hand_brings_nothing_back(urls: Urls, point: str) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0, "gone": 0})
        await drain(urls)
        with start_stopping_worker(urls, point, "--lease", LEASE, "--flush-delay", "0.02") as stopped:
            await made.update({"a": 1, "gone": 1})
            stopped.wait_until_stopped()
            await made.update({"a": 2}, delete=["gone"])
            with start_worker(urls, "--lease", LEASE, "--flush-delay", "0.02") as other:
                await made.flush(60)
                stop_worker(urls, other)
            assert stored_values(urls.database, session("ada", "s1")) == {"a": 2}
            stopped.send(signal.SIGCONT)
            stop_worker(urls, stopped)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 2}
    assert dirty(urls.redis) == 0
    await reads_cold(urls, {"a": 2})


@pytest.mark.parametrize("point", ["read", "committed"])
async def test_r7_a_worker_stopped_before_a_delete_does_not_bring_the_session_back(urls: Urls, point: str) -> None:
    async with connect(urls) as cache:
        with start_stopping_worker(urls, point, "--lease", LEASE, "--flush-delay", "0.02") as stopped:
            await cache.create("ada", session_id="s1", state={"a": 1})
            stopped.wait_until_stopped()
            await cache.delete("ada", "s1")
            with start_worker(urls, "--lease", LEASE, "--flush-delay", "0.02") as other:
                await cache.flush(60)
                stop_worker(urls, other)
            stopped.send(signal.SIGCONT)
            stop_worker(urls, stopped)
        assert stored_values(urls.database, session("ada", "s1")) is None
        evict(urls.redis)
        assert (await cache.list()).items == []
        with pytest.raises(LookupError):
            await cache.get("ada", "s1")


@pytest.mark.parametrize("point", ["claimed", "read", "committed"])
async def test_r9_what_a_killed_worker_had_claimed_is_flushed_by_another_within_the_lease(
    urls: Urls, point: str
) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        await drain(urls)
        with start_stopping_worker(urls, point, "--lease", "2", "--flush-delay", "0.02") as doomed:
            await made.update({"a": 1, "user:u": 1, "app:p": 1})
            doomed.wait_until_stopped()
            doomed.send(signal.SIGKILL)
            assert doomed.wait() == -signal.SIGKILL
        assert dirty(urls.redis) > 0, "nothing is acknowledged"
        assert value(urls) == (1 if point == "committed" else 0)
        with start_worker(urls, "--lease", "2", "--flush-delay", "0.02") as other:
            await made.flush(60)
            await wait_until_async(lambda: dirty(urls.redis) == 0, 6, "a commit that is done again is acknowledged")
            stop_worker(urls, other)
    assert value(urls) == 1
    assert claims(urls.redis) == []


async def test_r9_a_worker_killed_inside_its_transaction_loses_nothing(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        await drain(pg_urls)
        with start_worker(pg_urls, "--lease", "2", "--flush-delay", "0.02") as doomed:
            with locked_row(pg_urls):
                await made.set("a", 1)
                wait_until(lambda: waiters(pg_urls) > 0, 10, "the worker waits for the row")
                doomed.send(signal.SIGKILL)
                doomed.wait()
            with start_worker(pg_urls, "--lease", "2", "--flush-delay", "0.02") as other:
                await made.flush(60)
                stop_worker(pg_urls, other)
    assert value(pg_urls) == 1


async def reads_cold(urls: Urls, expected: dict[str, object]) -> None:
    """The session as SQL gives it back."""
    evict(urls.redis)
    async with connect(urls) as cache:
        assert dict((await cache.get("ada", "s1")).state) == expected
