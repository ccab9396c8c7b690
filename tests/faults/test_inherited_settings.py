"""What an operator sets for a database counts for connections from their beginning: taken back, it is over (R10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sessioncache_worker import FlushWorker

from sessioncache import DurableTierUnavailableError
from sessioncache.durable.tier import DurableTier
from sessioncache.primitives.outages import SQL
from tests.helpers import Urls, connect, execute, fetch, open_worker, upgrade
from tests.servers import PostgreSQLServer
from tests.waiting import wait_until_async

READ_ONLY = "default_transaction_read_only = on"
_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def alter(url: str, what: str) -> None:
    """Change the settings of the database, whatever they are."""
    options = "-c default_transaction_read_only=off -c statement_timeout=0"
    with psycopg.connect(url, autocommit=True, options=options) as server:
        server.execute(f"ALTER DATABASE {server.info.dbname} {what}".encode())


@contextmanager
def set_for_all(url: str, setting: str) -> Iterator[None]:
    """A setting of the database, also for those who are connected; taken back for new connections only."""
    alter(url, f"SET {setting}")
    execute(url, f"SELECT pg_terminate_backend(pid) {_OTHERS}")
    try:
        yield
    finally:
        alter(url, "RESET ALL")


@pytest.fixture
async def urls(valkey_url: str, postgresql_server: PostgreSQLServer) -> Urls:
    """Valkey over a database of its own, with the schema."""
    database = postgresql_server.url(postgresql_server.create_database())
    await upgrade(database)
    return Urls(valkey_url, database)


async def works(tier: DurableTier) -> bool:
    """Whether a call that writes and one that reads go through."""
    try:
        await tier.note("noted", "1")
        await tier.read_layout()
    except DurableTierUnavailableError:
        return False
    return True


@pytest.mark.parametrize("setting", [READ_ONLY, "search_path = nowhere"])
async def test_r10_pooled_connections_do_not_keep_a_setting_that_is_taken_back(urls: Urls, setting: str) -> None:
    tier = DurableTier.connect(urls.database)
    try:
        with set_for_all(urls.database, setting):
            async with asyncio.TaskGroup() as all_of_the_pool:
                for _ in range(10):
                    all_of_the_pool.create_task(works(tier))
            assert not await works(tier)
        await wait_until_async(lambda: works(tier), 10, "new connections are made")
        async with asyncio.TaskGroup() as all_of_the_pool:
            tries = [all_of_the_pool.create_task(works(tier)) for _ in range(10)]
        assert all(one.result() for one in tries)
    finally:
        await tier.aclose()


async def test_r10_a_worker_goes_on_once_its_database_is_not_read_only_any_more(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls, flush_delay=0.05, lease=2.0, sweep=0.5) as worker:
        await cache.create("ada", session_id="before")
        task = asyncio.ensure_future(worker.run())
        await cache.flush(20)
        with set_for_all(urls.database, READ_ONLY):
            await cache.create("ada", session_id="s", state={"a": 1})
            await wait_until_async(lambda: is_read_only(worker), 30, "the worker has met it")
        await cache.flush(20)
        worker.stop()
        await task
    assert fetch(urls.database, "SELECT count(*) FROM sessioncache_session") == [(2,)]


def is_read_only(worker: FlushWorker) -> bool:
    """Whether the worker knows."""
    return "it is read-only" in worker._outages.causes().get(SQL, "")


async def test_r10_an_agent_erases_once_its_database_is_not_read_only_any_more(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s", state={"a": 1})
        async with open_worker(urls) as worker:
            await worker.flush_once()
        with set_for_all(urls.database, READ_ONLY):
            erasing = asyncio.ensure_future(cache.erase_user("ada"))
            outages = cache._tiers._outages
            await wait_until_async(lambda: "it is read-only" in outages.causes().get(SQL, ""), 5, "it has met it")
        await erasing
    assert fetch(urls.database, "SELECT count(*) FROM sessioncache_state") == [(0,)]
