"""Caches and handles from before a fork work on in the child, over connections of its own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import event

from sessioncache.sync import Session, SessionCache
from sessioncache.sync import portal as portals
from sessioncache.sync.connection import Connection
from sessioncache.sync.portal import portal
from tests.forking import Child, in_child
from tests.helpers import Urls, drain, start_worker
from tests.sync.jobs import count
from tests.waiting import stretched

CHILDREN = 4


def descriptors(beginning: str) -> int:
    """How many open descriptors of this process lead to something of this name."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += str(link.readlink()).startswith(beginning)
    return found


def test_cache_and_handle_work_in_the_child_and_on_in_the_parent(cache: SessionCache) -> None:
    session = cache.create("ada", session_id="s1", state={"n": 0})
    scope = cache.bound_to(org="o").app_scope()

    def work() -> object:
        scope.increment("visits")
        return [session.increment("n"), cache.get("ada", "s1").state["n"], dict(session.state)]

    assert in_child(work) == [1, 1, {"n": 1}]
    assert (session.get("n"), scope.get("visits")) == (1, 1)


def test_children_and_parent_write_at_once_and_no_reply_is_mixed_up(cache: SessionCache) -> None:
    session = cache.create("ada", session_id="s1")

    def work(number: int) -> object:
        for call in range(50):
            session.increment("n")
            session.set(f"k{number}", call)
            assert session.get(f"k{number}") == call
        return True

    children = [Child(lambda number=number: work(number)) for number in range(CHILDREN)]  # type: ignore[misc]
    assert work(CHILDREN)
    assert [child.answer() for child in children] == [True] * CHILDREN
    assert session.get("n") == 50 * (CHILDREN + 1)


def test_a_child_inherits_neither_sockets_nor_sqlite_files(urls: Urls) -> None:
    file = urls.database.removeprefix("sqlite:///")
    portal().call(asyncio.sleep(0))
    before = descriptors("socket:")
    with SessionCache.connect(*urls, app="app", timeout=stretched(5.0)) as cache:
        session = cache.create("ada", session_id="s1")
        assert descriptors("socket:") > before
        assert in_child(lambda: [descriptors("socket:") - before, descriptors(file)]) == [0, 0]
        assert session.increment("n") == 1


def test_a_handle_in_a_child_belongs_to_the_same_life(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", session_id="s1")
    small_cache.delete("ada", "s1")
    small_cache.create("ada", session_id="s1")
    assert in_child(lambda: session.set("a", 1)) == ["SessionNotFoundError", "there is no session 's1' of this user"]


def test_r11_a_child_waits_for_what_was_written_before_the_fork(small_urls: Urls, small_cache: SessionCache) -> None:
    session = small_cache.create("ada", session_id="s1")
    for flush in (session.flush, small_cache.flush):
        assert in_child(lambda flush=flush: flush(timeout=0.2))[0] == "FlushTimeoutError"  # type: ignore[misc]
    grandchild = in_child(lambda: [small_cache.list() and 0, in_child(lambda: session.flush(timeout=0.2))])
    assert grandchild[1][0] == "FlushTimeoutError"
    with start_worker(small_urls, "--flush-delay", "0.02"):
        assert in_child(lambda: [session.flush(), small_cache.flush()]) == [None, None]


def test_a_closed_cache_is_closed_in_the_child_too(small_cache: SessionCache) -> None:
    small_cache.close()
    assert in_child(small_cache.list) == ["ConfigurationError", "this cache has been closed"]


def test_closing_in_the_child_closes_nothing_of_the_parent(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"a": 1})
    assert in_child(small_cache.close) is None
    assert session.get("a") == 1


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_takes_a_cache_along(small_cache: SessionCache, method: str) -> None:
    session = small_cache.create("ada", session_id="s1")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        counted = [pool.submit(count, small_cache, 20) for _ in range(2)]
        assert max(done.result(stretched(60)) for done in counted) == 40
    assert session.get("n") == 40


# ---- forks while other threads are in the middle of a call


def test_a_call_on_its_way_goes_on_in_the_parent_and_does_not_disturb_the_child(
    small_urls: Urls, small_cache: SessionCache
) -> None:
    session = small_cache.create("ada", session_id="s1", state={"n": 0})
    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(session.flush, 30)
        for number in range(1, 6):
            assert in_child(lambda: [session.increment("n"), gc.collect() and None]) == [number, None]
        assert not flushing.done()
        with start_worker(small_urls, "--flush-delay", "0.02"):
            assert flushing.result(stretched(30)) is None


def test_threads_may_call_while_the_process_forks(small_cache: SessionCache) -> None:
    session, stop = small_cache.create("ada", session_id="s1"), threading.Event()

    def work(number: int) -> int:
        calls = 0
        while not stop.is_set():
            session.increment(f"t{number}")
            calls += 1
        return calls

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(work, number) for number in range(3)]
        try:
            assert [in_child(lambda: session.increment("child")) for _ in range(20)] == list(range(1, 21))
        finally:
            stop.set()
        assert [session.get(f"t{number}") for number in range(3)] == [
            thread.result(stretched(10)) for thread in threads
        ]


@contextmanager
def locked(urls: Urls) -> Iterator[sqlite3.Connection]:
    """Hold the SQLite database for writing."""
    holder = sqlite3.connect(urls.database.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield holder
    finally:
        if holder.in_transaction:
            holder.execute("ROLLBACK")
        holder.close()


def writes_to_sql(cache: SessionCache) -> Session:
    """Create a session in a bucket that is not registered yet, which takes a transaction."""
    return cache.create("bob", session_id="s1")


def locking(cache: SessionCache) -> threading.Event:
    """Set once a transaction that writes begins: on a database that is held, it waits for its lock."""
    begun = threading.Event()

    def watch(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("BEGIN IMMEDIATE"):
            begun.set()

    event.listen(cache.current()._tiers.durable.engine.sync_engine, "before_cursor_execute", watch)
    return begun


def test_a_fork_waits_for_a_transaction_on_sqlite(
    small_urls: Urls, small_cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, inner = [0], Connection.at_rest
    session = small_cache.create("ada", session_id="s1")
    with locked(small_urls) as holder, ThreadPoolExecutor(1) as pool:
        begun = locking(small_cache)
        creating = pool.submit(writes_to_sql, small_cache)
        assert begun.wait(stretched(10)), "the transaction waits for its lock"

        def at_rest(self: Connection) -> bool:
            looks[0] += 1
            if looks[0] == 3:
                holder.execute("ROLLBACK")
            return inner(self)

        monkeypatch.setattr(Connection, "at_rest", at_rest)
        assert in_child(lambda: session.increment("n")) == 1
        assert creating.result(stretched(10)).id == "s1"
    assert looks[0] > 3


def test_a_child_says_so_where_a_transaction_on_sqlite_did_not_end(
    small_urls: Urls, small_cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = small_cache.create("ada", session_id="s1")
    monkeypatch.setattr(portals, "_FORK_PATIENCE", 0.1)
    with locked(small_urls) as holder, ThreadPoolExecutor(1) as pool:
        begun = locking(small_cache)
        creating = pool.submit(writes_to_sql, small_cache)
        assert begun.wait(stretched(10)), "the transaction waits for its lock"
        name, text = in_child(lambda: session.increment("n"))
        holder.execute("ROLLBACK")
        assert creating.result(stretched(10)).id == "s1"
    assert (name, "amid a transaction on its SQLite file" in text) == ("ConfigurationError", True)
    assert session.increment("n") == 1


async def test_what_child_and_parent_wrote_to_sqlite_is_whole(small_urls: Urls) -> None:
    cache = SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0))
    for number in range(5):
        cache.create("ada", session_id=f"p{number}")
        assert in_child(lambda number=number: cache.create("ada", session_id=f"c{number}").id) == f"c{number}"  # type: ignore[misc]
    await drain(small_urls)
    assert len(cache.list(limit=None).items) == 10
    cache.close()
    database = sqlite3.connect(small_urls.database.removeprefix("sqlite:///"))
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
