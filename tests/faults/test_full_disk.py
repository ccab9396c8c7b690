"""A disk that is full is an outage: nothing is set apart, and everything is flushed once there is room again (R10)."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessioncache import SessionCache
from sessioncache.primitives.scopes import ScopeRef
from tests.helpers import Process, Urls, connect, execute, raw, session, start_worker, stored_values, upgrade
from tests.waiting import wait_until_async

_LEASE = 2
FAST = ("--flush-delay", "0.1", "--lease", str(_LEASE))
_UNLIMITED = resource.RLIM_INFINITY


async def write_on_a_full_disk(urls: Urls, cache: SessionCache, fill: Callable[[Process], None]) -> Process:
    """A worker that has met the full disk several times with something to flush."""
    worker = start_worker(urls, *FAST)
    await cache.create("ada", session_id="before")
    await cache.flush(60)
    fill(worker)
    await cache.create("ada", session_id="s1", state={"a": "x" * 200_000})
    complaints, failures = "", set[bytes]()

    def tried_often() -> bool:
        nonlocal complaints
        complaints += worker.complained()
        failures.update(put_off(urls, session("ada", "s1")))
        return len(failures) >= 4

    await wait_until_async(tried_often, 30, "the worker has tried several times")
    assert "the SQL database cannot be used: its disk " in complaints
    return worker


def put_off(urls: Urls, scope: ScopeRef) -> list[bytes]:
    """The note of a claim (worker, since when, until when) that a worker has put off, since it failed.

    Each failure leaves another, for a while.  Those of claims and renewals are as long as the lease.
    """
    with raw(urls.redis) as client:
        note: Any = client.hget(f"sessioncache:{{{scope.bucket}}}:ctl", f"c:{scope.member}")
    if note is None:
        return []
    _, since, until = note.split(b"|")
    return [note] if int(until) - int(since) != _LEASE * 1_000_000 else []


def check_nothing_is_set_apart(urls: Urls) -> None:
    with raw(urls.redis) as client:
        assert not list(client.scan_iter(match="sessioncache:*:dead", count=1000))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are set by Linux only")
async def test_a_full_disk_under_sqlite_makes_no_letter(valkey_url: str, sqlite_url: str) -> None:
    await upgrade(sqlite_url)
    urls = Urls(valkey_url, sqlite_url)
    path = Path(sqlite_url.removeprefix("sqlite:///"))

    def fill(worker: Process) -> None:
        size = max(path.stat().st_size, path.with_name(path.name + "-wal").stat().st_size)
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (size, _UNLIMITED))

    async with connect(urls) as cache:
        with await write_on_a_full_disk(urls, cache, fill) as worker:
            check_nothing_is_set_apart(urls)
            assert stored_values(urls.database, session("ada", "s1")) is None
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (_UNLIMITED, _UNLIMITED))
            await cache.flush(60)
        assert stored_values(urls.database, session("ada", "s1")) == {"a": "x" * 200_000}


@pytest.mark.timeout(300)  # each try waits twice as long as the one before
async def test_a_full_disk_under_postgresql_makes_no_letter(valkey_url: str, postgresql_url: str) -> None:
    await upgrade(postgresql_url)
    urls = Urls(valkey_url, postgresql_url)

    def fill(_worker: Process) -> None:
        for table in ("state", "session", "layout"):
            execute(urls.database, _FULL.replace("TABLE", table))
            execute(urls.database, _TRIGGER.replace("TABLE", table))

    async with connect(urls) as cache:
        with await write_on_a_full_disk(urls, cache, fill):
            check_nothing_is_set_apart(urls)
            for table in ("state", "session", "layout"):
                execute(urls.database, f"DROP TRIGGER full_disk ON sessioncache_{table}")
            await cache.flush(60)
        assert stored_values(urls.database, session("ada", "s1")) == {"a": "x" * 200_000}


_FULL = """
CREATE FUNCTION no_room_TABLE() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
END $$
"""
_TRIGGER = """
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON sessioncache_TABLE
FOR EACH ROW EXECUTE FUNCTION no_room_TABLE()
"""
