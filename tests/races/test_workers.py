"""Workers as processes: many at once, SIGTERM, --once (R6, R9)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from sessioncache_worker import FlushWorker

from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.messages import Claims
from tests.helpers import (
    Agent,
    Urls,
    app,
    claims,
    connect,
    dirty,
    drain,
    fetch,
    head_row,
    open_worker,
    session,
    start_worker,
    stop_worker,
    stored_values,
    upgrade,
    user,
)
from tests.proxy import Proxy
from tests.races.locks import locked_row, waiters
from tests.servers import PostgreSQLServer
from tests.waiting import stretched, wait_until, wait_until_async


async def test_r6_several_workers_over_the_same_scopes_never_deadlock(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        await cache.create("ada", session_id="s1")
    with ExitStack() as stack:
        options = ("--flush-delay", "0.01", "--lease", "1", "--batch-rows", "20")
        workers = [stack.enter_context(start_worker(pg_urls, *options)) for _ in range(3)]
        agents = [stack.enter_context(Agent(pg_urls)) for _ in range(2)]
        for number, agent in enumerate(agents):
            agent.begin("work", "ada", "s1", f"p{number}", 150, 600)
        async with connect(pg_urls, timeout=30) as cache:
            for _ in range(10):
                users = [cache.user_scope(f"u{n}") for n in range(40)]
                await asyncio.gather(*(one.update({f"k{k}": k for k in range(10)}) for one in users))
            assert max([agent.answer() for agent in agents]) == 1_200
            await cache.flush(60)
        for agent in agents:
            assert agent.do("flush") is None
        for worker in workers:
            stop_worker(pg_urls, worker)
    assert dirty(pg_urls.redis) == 0
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert fetch(pg_urls.database, query) == [(0,)]
    keys = {f"p{number}-{key}": key for number in range(2) for key in range(150)}
    assert stored_values(pg_urls.database, session("ada", "s1")) == keys
    assert stored_values(pg_urls.database, user("ada")) == keys
    assert stored_values(pg_urls.database, app()) == keys | {"counter": 1_200}
    for number in range(40):
        assert stored_values(pg_urls.database, user(f"u{number}")) == {f"k{k}": k for k in range(10)}


async def test_a_worker_that_is_asked_to_end_finishes_what_it_claimed(urls: Urls) -> None:
    async with connect(urls) as cache:
        for number in range(300):
            await cache.create(f"u{number}", session_id="s", state={"n": number})
        with start_worker(urls, "--flush-delay", "0.01") as worker:
            await asyncio.to_thread(stop_worker, urls, worker)
        async with connect(urls) as other:
            assert len((await other.list(limit=None)).items) == 300
    assert claims(urls.redis) == []
    await drain(urls)
    assert dirty(urls.redis) == 0


async def test_once_flushes_everything_and_exits_0(urls: Urls) -> None:
    async with connect(urls) as cache:
        for number in range(50):
            await cache.create("ada", session_id=f"s{number}", state={"n": number, "user:u": number})
        await cache.delete("ada", "s0")
    with start_worker(urls, "--once") as worker:
        code, _, err = worker.finish()
    assert code == 0, err
    assert dirty(urls.redis) == 0
    assert stored_values(urls.database, session("ada", "s49")) == {"n": 49}
    assert stored_values(urls.database, user("ada")) == {"u": 49}
    with start_worker(urls, "--once") as worker:
        assert worker.wait() == 0, "with nothing to do too"


async def test_once_with_the_database_away_exits_3_and_keeps_everything(
    valkey_url: str, postgresql_server: PostgreSQLServer, postgresql_url: str
) -> None:
    await upgrade(postgresql_url)
    direct = Urls(valkey_url, postgresql_url)
    name = postgresql_url.split("@/")[1].split("?")[0]
    async with connect(direct) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
    async with Proxy(postgresql_server.folder / ".s.PGSQL.5432") as proxy:
        await proxy.refuse()
        away = Urls(valkey_url, f"postgresql://postgres:s3cret@127.0.0.1:{proxy.port}/{name}")
        with start_worker(away, "--once", "--lease", "300") as worker:
            code, _, err = await asyncio.to_thread(worker.finish)
    assert code == 3, err
    assert "s3cret" not in err
    assert dirty(valkey_url) == 1
    async with asyncio.timeout(stretched(6)):  # its claims are given back, long before its lease is over
        await drain(direct)
    assert stored_values(postgresql_url, session("ada", "s1")) == {"a": 1}


async def test_once_with_redis_away_exits_3(sqlite_url: str) -> None:
    await upgrade(sqlite_url)
    with start_worker(Urls("unix:///nowhere.sock", sqlite_url), "--once") as worker:
        assert worker.wait() == 3


async def test_a_worker_without_schema_exits_2(valkey_url: str, sqlite_url: str) -> None:
    for options in (("--once",), ()):
        with start_worker(Urls(valkey_url, sqlite_url), *options) as worker:
            assert worker.wait() == 2


async def test_a_second_signal_ends_a_worker_at_once_and_loses_nothing(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        await drain(pg_urls)
        with start_worker(pg_urls, "--flush-delay", "0.01", "--lease", "2") as worker, locked_row(pg_urls):
            await made.set("a", 1)
            wait_until(lambda: waiters(pg_urls) > 0, 10, "the worker waits for the row")
            worker.send(signal.SIGTERM)
            wait_until(lambda: handles(worker.pid, signal.SIGTERM) is False, 10, "the first signal has been heard")
            worker.send(signal.SIGTERM)
            assert worker.wait() == -signal.SIGTERM
    with start_worker(pg_urls, "--once") as other:
        assert other.wait() == 0
    assert stored_values(pg_urls.database, session("ada", "s1")) == {"a": 1}


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    with open(f"/proc/{pid}/status") as status:
        (caught,) = [line.split()[1] for line in status if line.startswith("SigCgt")]
    return bool(int(caught, 16) & (1 << (number - 1)))


async def test_a_wake_up_that_comes_during_a_look_is_not_lost(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls, flush_delay=0.05, sweep=600) as worker:
        await drain(urls)
        interrupted = Interruption(worker, user("ada").bucket, lambda: cache.create("ada", session_id="s1"))
        running = asyncio.ensure_future(worker.run())
        await wait_until_async(lambda: head_row(urls.database, session("ada", "s1")), 10, "the session is in SQL")
        assert interrupted.done
        worker.stop()
        await running


class Interruption:
    """Does something, and waits until the worker has heard of it, after a bucket was looked at in vain."""

    def __init__(self, worker: FlushWorker, bucket: int, act: Callable[[], Awaitable[object]]) -> None:
        self._bucket, self._act, self.done = bucket, act, False
        self._heard = asyncio.Event()
        self._claim, self._announce = worker._tiers.backlog.claim, worker._schedule.announce
        worker._tiers.backlog.claim = self.claim  # type: ignore[method-assign]
        worker._schedule.announce = self.announce  # type: ignore[method-assign]

    async def claim(self, buckets: Sequence[int], *args: Any, **named: Any) -> dict[int, Claims | None]:
        """The look, and what happens before its result is used."""
        found = await self._claim(buckets, *args, **named)
        if found.get(self._bucket) is not None and not self.done:
            self.done = True
            self._heard.clear()
            await self._act()
            await asyncio.wait_for(self._heard.wait(), stretched(5))
        return found

    def announce(self, bucket: int, now: float) -> None:
        """The worker hears of a bucket."""
        self._announce(bucket, now)
        if bucket == self._bucket:
            self._heard.set()


async def test_after_a_batch_that_failed_no_other_one_is_begun(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls, batch_rows=200) as worker:
        await drain(urls)
        await asyncio.gather(*(cache.user_scope(f"u{number}").set("k", number) for number in range(300)))
        begun = 0

        async def fail(*_: object, **__: object) -> None:
            nonlocal begun
            begun += 1
            raise DurableTierUnavailableError("away")

        worker._tiers.durable.flush = fail  # type: ignore[method-assign,assignment]
        with pytest.raises(DurableTierUnavailableError):
            await worker.flush_once()
        assert 0 < begun <= worker._tiers.durable.writers
        assert worker.flusher._batch_size.rows < 200, "the next ones are smaller"
