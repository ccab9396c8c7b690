"""Many threads use one cache and one handle at once."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from sessioncache.errors import ConfigurationError, FlushTimeoutError, SessionCacheError
from sessioncache.primitives.names import KeyScope
from sessioncache.sync import SessionCache
from sessioncache.sync.portal import portal
from tests.helpers import Urls, drain, evict
from tests.waiting import stretched, wait_until

THREADS = 8
CALLS = 50


def together(work: Callable[[int], object], threads: int = THREADS) -> list[object]:
    """Run so many threads that begin at the same moment; their results."""
    barrier = threading.Barrier(threads)

    def one(number: int) -> object:
        barrier.wait(10)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(threads)))


def evict_all(urls: Urls) -> None:
    """Make every session cold."""
    asyncio.run(drain(urls))
    evict(urls.redis)


def test_threads_share_one_handle_and_no_write_is_lost(cache: SessionCache) -> None:
    session = cache.create("ada", session_id="s1")

    def work(number: int) -> None:
        for call in range(CALLS):
            session.increment("n")
            session.set(f"k{number}", call)
            session.append("app:list", number)

    together(work)
    fresh = cache.get("ada", "s1")
    assert fresh.state["n"] == session.state["n"] == THREADS * CALLS
    assert [fresh.state[f"k{number}"] for number in range(THREADS)] == [CALLS - 1] * THREADS
    assert sorted(fresh.state["app:list"]) == sorted(list(range(THREADS)) * CALLS)


def test_a_thousand_calls_of_a_hundred_threads_succeed_on_the_defaults(cache: SessionCache, urls: Urls) -> None:
    def create(number: int) -> None:
        for call in range(5):
            cache.create(f"u{number}", session_id=f"s{call}", state={"n": call})

    def read_and_write(number: int) -> None:
        for call in range(5):
            session = cache.get(f"u{number}", f"s{call}")
            assert session.increment("n") == call + 1

    together(create, 100)
    evict_all(urls)
    together(read_and_write, 100)
    assert cache.get("u99", "s4").state["n"] == 5


def test_state_can_be_looked_at_while_other_threads_write(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"always": True})
    stop = threading.Event()

    def write() -> None:
        for n in range(2 * CALLS):
            session.set(f"k{n}", n)
            session.delete(f"k{n}")
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        assert dict(session.state)["always"] is True
    writer.join()
    assert dict(session.state) == {"always": True}


def test_the_state_never_shows_a_part_of_a_call(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"a": 1, "b": 1})
    amid, go_on = threading.Event(), threading.Event()
    full = session._handle._full

    def stopping(scope: KeyScope, name: str) -> str:
        if name == "b":  # `a` has been noted by then
            amid.set()
            go_on.wait(30)
        return full(scope, name)

    with patch.object(session._handle, "_full", stopping), ThreadPoolExecutor(2) as pool:
        try:
            writing = pool.submit(session.update, {"a": 2, "b": 2})
            assert amid.wait(stretched(5))
            reading = pool.submit(lambda: dict(session.state))
            with suppress(TimeoutError):
                reading.result(0.3)  # it must not be there yet
        finally:
            go_on.set()
        assert reading.result(stretched(5)) == {"a": 2, "b": 2}
        writing.result(stretched(5))


def test_the_state_is_whole_while_other_threads_read_it_anew(small_cache: SessionCache) -> None:
    keys = {f"k{n}": n for n in range(200)} | {"user:a": 1, "app:b": 2, "temp:c": 3}
    session = small_cache.create("ada", session_id="s1", state=keys)
    other, stop = small_cache.get("ada", "s1"), threading.Event()

    def until_stopped(call: Callable[[], object]) -> None:
        while not stop.is_set():
            call()

    interval = sys.getswitchinterval()
    with ThreadPoolExecutor(3) as pool:
        try:
            sys.setswitchinterval(0.00005)
            others = [pool.submit(until_stopped, session.refresh) for _ in range(2)]
            others.append(pool.submit(until_stopped, lambda: other.increment("k0")))
            for _ in range(3_000):
                assert session.state.keys() == keys.keys()
        finally:
            sys.setswitchinterval(interval)
            stop.set()
        for one in others:
            one.result()


def test_the_state_is_handed_on_as_long_as_it_is_the_same(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", session_id="s1", state={"a": 1})
    first = session.state
    assert session.state is first
    small_cache.get("ada", "s1").set("a", 2)
    assert session.get("a") == 2
    assert (session.state["a"], first["a"]) == (2, 1)
    small_cache.get("ada", "s1").set("a", 3)
    session.refresh()
    assert session.state["a"] == 3


class _Moving(dict[bytes, bytes]):
    """A head of which another thread changes more with every field that is looked at."""

    def get(self, name: bytes, default: Any = None) -> Any:
        count = b"%d" % (int(self[b"m"]) + 1)
        self.update({b"m": count, b"k": count})
        return super().get(name, default)


def test_what_is_told_of_a_session_is_of_one_moment(small_cache: SessionCache) -> None:
    session = small_cache.create("ada")
    session.touch(messages=1, tokens=1)
    session._handle._head = _Moving(session._handle._head)
    info = session.info
    assert info.message_count == info.token_total


def test_state_is_there_on_the_thread_of_the_portal_too(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"a": 1})
    assert portal().look(lambda: dict(session.state)) == {"a": 1}


def test_state_is_there_at_the_end_of_the_process_too(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"a": 1})
    with patch.object(portal(), "ended", True):
        assert dict(session.state) == {"a": 1}


def test_threads_that_connect_at_once_have_one_portal(small_urls: Urls) -> None:
    def work(_: int) -> object:
        with SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0)) as cache:
            return cache.app_scope().increment("n")

    assert set(together(work)) == set(range(1, THREADS + 1))
    assert len([thread for thread in threading.enumerate() if thread.name == "sessioncache-portal"]) == 1


def test_a_slow_call_of_one_thread_keeps_no_other_waiting(small_urls: Urls) -> None:
    with SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0)) as cache:
        session = cache.create("ada", state={"a": 1})
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(session.flush, 2)
            assert [session.get("a") for _ in range(20)] == [1] * 20
            assert not slow.done()
            assert isinstance(slow.exception(), FlushTimeoutError)


def test_closing_under_other_threads_ends_their_calls_with_one_clear_error(small_urls: Urls) -> None:
    cache = SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0))
    session, begun, errors = cache.create("ada"), threading.Event(), []

    def work() -> None:
        try:
            while True:
                session.increment("n")
                begun.set()
        except SessionCacheError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    cache.close()
    wait_until(lambda: len(errors) == 4, 10, "all threads have ended")
    assert [str(error) for error in errors] == ["this cache has been closed"] * 4
    assert {type(error) for error in errors} == {ConfigurationError}
