"""What calls of the synchronous API do; what they mean is tested through the asynchronous one."""

from __future__ import annotations

import pickle
import signal
import threading
import traceback
from typing import Any

import pytest
from redis.asyncio import Redis

from sessioncache.errors import (
    ConfigurationError,
    FlushTimeoutError,
    InvalidValueError,
    SessionCacheError,
    SessionExistsError,
    SessionNotFoundError,
    StaleSessionError,
)
from sessioncache.sync import SessionCache
from sessioncache.sync.portal import portal
from tests.helpers import Urls, start_worker
from tests.servers import RedisServer
from tests.waiting import stretched, wait_until


def test_a_session_is_created_read_changed_listed_and_deleted(cache: SessionCache) -> None:
    made = cache.create("ada", session_id="s1", state={"a": 1, "user:u": 2, "temp:t": 3}, title="Hello")
    assert (made.id, made.user, made.app, made.org, made.title) == ("s1", "ada", "app", "", "Hello")
    found = cache.get("ada", "s1")
    assert dict(found.state) == {"a": 1, "user:u": 2, "temp:t": 3}
    assert found.update({"b": [1]}, delete=["a"]) == found.revision
    assert found.append("b", 2, 3) == 3
    assert found.increment("n", 2) == 2
    assert found.delete("n") is True
    assert found.get("n", "none") == "none"
    made.refresh()
    assert made.state["b"] == [1, 2, 3]
    assert [info.id for info in cache.list("ada").items] == ["s1"]
    assert cache.get_or_create("ada", "s1")[1] is False
    assert cache.delete("ada", "s1") is True
    with pytest.raises(SessionNotFoundError):
        made.get("b")


def test_a_draft_is_written_in_one_step_or_not_at_all(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", state={"plan": {"steps": [1]}})
    with session.edit() as draft:
        draft["plan"]["steps"].append(2)
    assert session.get("plan") == {"steps": [1, 2]}
    with pytest.raises(StaleSessionError) as caught, session.edit() as draft:
        draft["plan"] = session.set("plan", 0)
    assert caught.value.keys == ("plan",)
    with pytest.raises(KeyError, match="missing"), session.edit() as draft:
        draft["plan"] = draft["missing"]
    assert session.get("plan") == 0


def test_shared_scopes_and_other_tenants_are_reached(small_cache: SessionCache) -> None:
    small_cache.user_scope("ada").set("language", "en")
    small_cache.app_scope().increment("visits")
    session = small_cache.create("ada")
    session.refresh()
    assert dict(session.state) == {"user:language": "en", "app:visits": 1}
    other = small_cache.bound_to(org="other")
    other.close()
    assert other.list().items == []
    assert other.app_scope().get("visits") is None


def test_flush_waits_until_everything_is_durable(urls: Urls, cache: SessionCache) -> None:
    session = cache.create("ada", state={"a": 1})
    with pytest.raises(FlushTimeoutError):
        session.flush(timeout=0.1)
    with start_worker(urls, "--flush-delay", "0.02"):
        session.flush()
        cache.flush()


def test_an_error_keeps_its_type_its_data_and_both_ends_of_its_traceback(small_cache: SessionCache) -> None:
    small_cache.create("ada", session_id="s1")
    with pytest.raises(SessionExistsError) as exists:
        small_cache.create("ada", session_id="s1")
    assert exists.value.session_id == "s1"
    shown = "".join(traceback.format_exception(exists.value))
    assert "test_an_error_keeps_its_type" in shown
    assert "create.py" in shown
    with pytest.raises(InvalidValueError) as invalid:
        small_cache.get("ada", "s1").set("a", {1})  # type: ignore[arg-type]
    assert (invalid.value.path, invalid.value.type_name) == ("a", "set")


def test_a_closed_cache_says_so_and_may_be_closed_again(small_urls: Urls) -> None:
    with SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0)) as cache:
        session = cache.create("ada", state={"a": 1})
    cache.close()
    calls: list[Any] = [lambda: cache.get("ada", session.id), lambda: session.get("a"), cache.flush, cache.app_scope]
    for call in calls:
        with pytest.raises(ConfigurationError, match="this cache has been closed"):
            call()
    assert session.state["a"] == 1


def test_a_callers_client_is_refused_with_the_reason(small_urls: Urls) -> None:
    with pytest.raises(ConfigurationError, match="connects by URLs"):
        SessionCache(Redis.from_url(small_urls.redis), object(), app="app")


def test_connecting_fails_at_once_and_with_its_own_error() -> None:
    with pytest.raises(ConfigurationError, match="unknown setting 'timout'"):
        SessionCache.connect("redis://localhost", "sqlite:///x.db", app="app", timout=1)
    with pytest.raises(ConfigurationError, match="only the URL of Redis is given"):
        SessionCache.connect("redis://localhost", app="app")


def test_a_pickled_cache_connects_anew_and_a_handle_cannot_be_pickled(small_cache: SessionCache) -> None:
    session = small_cache.bound_to(org="o").create("ada", state={"a": 1})
    copy = pickle.loads(pickle.dumps(small_cache.bound_to(org="o")))
    assert (copy.org, copy.app) == ("o", "app")
    assert copy.get("ada", session.id).state["a"] == 1
    with pytest.raises(ConfigurationError, match="pass the cache, the user and the session id"):
        pickle.dumps(session)
    copy._connection.close()


def test_the_portals_own_thread_is_told_instead_of_waiting_for_itself(small_cache: SessionCache) -> None:
    async def call() -> None:
        small_cache.list()

    with pytest.raises(ConfigurationError, match="by its own thread"):
        portal().call(call())


def test_an_interrupt_cancels_the_call_and_leaves_the_cache_usable(
    small_cache: SessionCache, valkey: RedisServer
) -> None:
    session = small_cache.create("ada", state={"a": 1})
    line = small_cache.current()._tiers.link._line
    assert line is not None
    main = threading.get_ident()

    def interrupt() -> None:
        wait_until(lambda: not line.idle, 10, "the call is on its way")
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    valkey.pause()
    try:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            session.get("a")
        assert line.idle, "the call has ended"
    finally:
        valkey.resume()
        interrupter.join()
    assert session.get("a") == 1


def test_what_cannot_be_used_is_refused_as_without_threads(small_cache: SessionCache) -> None:
    session = small_cache.create("ada", session_id="s1")
    odd: Any = float("nan")
    for call in (
        lambda: session.flush(odd),
        lambda: small_cache.flush(odd),
        lambda: session.update({"a": 1}, if_revision=odd),
        lambda: session.lease(ttl=odd).__enter__(),
        lambda: small_cache.list(limit=odd),
        lambda: small_cache.create(odd),
        lambda: session.namespace(odd),
    ):
        with pytest.raises(SessionCacheError):
            call()
