"""Batches: many sessions' calls in shared round trips, each of which fails alone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from sessioncache import (
    ConfigurationError,
    HotTierUnavailableError,
    InvalidNameError,
    InvalidValueError,
    Pending,
    Record,
    SessionCache,
    SessionNotFoundError,
    TypeMismatchError,
    sync,
)
from sessioncache.batch.batch import _AT_ONCE
from sessioncache.coordination.tiers import Tiers
from sessioncache.hot.connection import SharedConnection
from sessioncache.sync.portal import Portal
from sessioncache.testing import InMemorySessionCache
from tests.forking import in_child
from tests.helpers import Urls, connect, drain, evict
from tests.servers import RedisServer
from tests.waiting import stretched, wait_until_async


async def test_calls_of_many_sessions_are_made_and_answered(cache: SessionCache) -> None:
    made = [await cache.create(f"user{n}", session_id="s", state={"n": n}) for n in range(20)]
    async with cache.batch() as batch:
        handles = [batch.get(f"user{n}", "s") for n in range(20)]
        counts = [batch.on(one).increment("n") for one in made]
        batch.on(cache.app_scope()).set("runs", 1)
        batch.on(made[0].namespace("tools")).update({"a": 1})
        new = batch.create("ada", state={"x": 1})
    assert [pending.result() for pending in counts] == [n + 1 for n in range(20)]
    assert [pending.result().user for pending in handles] == [f"user{n}" for n in range(20)]
    assert await new.result().get("app:runs") == 1
    assert await made[0].namespace("tools").items() == [("a", 1)]


async def test_a_thousand_calls_share_few_departures(cache: SessionCache, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [await cache.create("ada", session_id=f"s{n}") for n in range(100)]
    leave, sizes = SharedConnection._leave, list[int]()

    def counted(line: SharedConnection) -> None:
        sizes.append(len(line._leaving))
        leave(line)

    monkeypatch.setattr(SharedConnection, "_leave", counted)
    async with cache.batch() as batch:
        results = [batch.on(one).set("n", n) for n in range(10) for one in made]
    assert len({pending.result() for pending in results}) > 1
    assert sum(sizes) >= 1_000
    assert len(sizes) < 200
    assert [await one.get("n") for one in made] == [9] * 100


async def test_thousands_of_calls_succeed(small_cache: SessionCache) -> None:
    async with small_cache.batch() as batch:
        made = [batch.create(f"user{n % 50}", session_id=f"s{n}", state={"n": n}) for n in range(1_250)]
    async with small_cache.batch() as batch:
        for n, one in enumerate(made):
            batch.on(one.result()).increment("n")
            batch.on(one.result()).set("app:last", n)
        found = [batch.get(f"user{n % 50}", f"s{n}") for n in range(1_250)]
    assert [one.result().state["n"] for one in found] == [n + 1 for n in range(1_250)]


async def test_so_many_calls_are_under_way_and_no_more(
    small_cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await small_cache.create("ada", session_id="s1")
    perform, now, most = Tiers.perform, 0, 0

    async def counted(tiers: Tiers, *call: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await perform(tiers, *call)
        finally:
            now -= 1

    monkeypatch.setattr(Tiers, "perform", counted)
    async with small_cache.batch() as batch:
        for n in range(2 * _AT_ONCE):
            batch.on(made.namespace(f"n{n}")).get("a")
    assert most == _AT_ONCE


async def test_what_is_noted_is_what_was_given_whatever_becomes_of_it(small_cache: SessionCache) -> None:
    made = [await small_cache.create("ada", session_id=f"s{n}") for n in range(3)]
    state: dict[str, Any] = {"list": []}
    async with small_cache.batch() as batch:
        for n, one in enumerate(made):
            state["n"] = n
            state["list"].append(n)
            batch.on(one).update(state, delete=(key for key in ["x"]))
            batch.on(one).set("set", state["list"])
            batch.on(one).append("append", state["list"])
            batch.on(one).upsert_record(Record("record", state["list"]))
            batch.create("ada", session_id=f"new{n}", state=state)
            batch.get_or_create("ada", f"newer{n}", state=state)
    for n, one in enumerate(made):
        numbers = list(range(n + 1))
        assert dict(one.state) == {"list": numbers, "n": n, "set": numbers, "append": [numbers], "record": numbers}
        for name in ("new", "newer"):
            assert dict((await small_cache.get("ada", f"{name}{n}")).state) == {"list": numbers, "n": n}


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("get", ("",), InvalidNameError),
        ("delete", ("",), InvalidNameError),
        ("set", ("", 1), InvalidNameError),
        ("set", ("a", (1,)), InvalidValueError),
        ("update", ({"a": 1, "": 1},), InvalidNameError),
        ("update", ({"a": 1, "b": {1}},), InvalidValueError),
        ("increment", ("", 1), InvalidNameError),
        ("increment", ("a", "1"), InvalidValueError),
        ("append", ("", 1), InvalidNameError),
        ("append", ("a", 1, b"2"), InvalidValueError),
        ("upsert_record", (Record("user:a", 1),), InvalidNameError),
        ("rename", ("\0",), InvalidNameError),
    ],
)
async def test_what_cannot_be_written_is_refused_where_it_is_noted(
    call: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    async with InMemorySessionCache(app="app") as cache:
        made = await cache.create("ada")
        async with cache.batch() as batch:
            with pytest.raises(error):
                getattr(batch.on(made), call)(*arguments)
        assert dict(made.state) == {}


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ("update", {"mapping": {"a": 1}, "delete": ["b", ""]}),
        ("update", {"mapping": {"a": 1}, "delete": ["a"]}),
        ("update", {"mapping": {"a": 1}, "delete": "b"}),
        ("touch", {"messages": -1}),
    ],
)
async def test_options_that_cannot_be_used_are_refused_where_they_are_noted(call: str, options: dict[str, Any]) -> None:
    async with InMemorySessionCache(app="app") as cache:
        made = await cache.create("ada")
        async with cache.batch() as batch:
            with pytest.raises((InvalidNameError, InvalidValueError)):
                getattr(batch.on(made), call)(**options)
        assert dict(made.state) == {}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("create", ("ada",)), ("get_or_create", ("ada", "s1")), ("rename", ("ada", "s1"))],
)
async def test_a_title_that_cannot_be_stored_is_refused_where_it_is_noted(
    call: str, arguments: tuple[str, ...]
) -> None:
    async with InMemorySessionCache(app="app") as cache, cache.batch() as batch:
        with pytest.raises(InvalidNameError):
            getattr(batch, call)(*arguments, title="\0")


async def test_sessions_and_namespaces_have_calls_of_their_own(small_cache: SessionCache) -> None:
    made = await small_cache.create("ada", state={"a": 1})
    space = made.namespace("tools")
    async with small_cache.batch() as batch:
        batch.on(made).touch(messages=2, tokens=5)
        batch.on(made).rename("renamed")
        records = batch.on(made).records()
        older = batch.on(made).upsert_record(Record("a", 0, datetime(2001, 1, 1, tzinfo=UTC)))
        cleared = batch.on(made).clear()
        batch.on(space).update({"y": 2, "x": 1})
        items, emptied = batch.on(space).items(), batch.on(space).clear()
    assert (made.title, made.message_count, made.token_total) == ("renamed", 2, 5)
    assert [record.key for record in records.result()] == ["a"]
    assert (older.result(), cleared.result()) == (False, 1)
    assert (items.result(), emptied.result()) == ([("x", 1), ("y", 2)], 2)


async def test_calls_on_one_scope_are_made_in_their_order(small_cache: SessionCache) -> None:
    made = await small_cache.create("ada", session_id="s1", state={"log": []})
    async with small_cache.batch() as batch:
        for n in range(300):
            batch.on(made).append("log", n)
        batch.on(await small_cache.get("ada", "s1")).append("log", "by another handle")
        batch.rename("ada", "s1", "renamed")
        read = batch.get("ada", "s1")
        deleted = batch.delete("ada", "s1")
        again = batch.create("ada", session_id="s1")
    assert read.result().state["log"] == [*range(300), "by another handle"]
    assert read.result().title == "renamed"
    assert deleted.result() is True
    assert dict(again.result().state) == {}


async def test_a_call_that_fails_fails_alone_and_the_first_error_is_raised(small_cache: SessionCache) -> None:
    made = [await small_cache.create("ada", session_id=f"s{n}", state={"text": "x"}) for n in range(5)]
    await small_cache.delete("ada", "s3")
    batch = small_cache.batch()
    await batch.__aenter__()
    pending: list[Pending[Any]] = [batch.on(one).set("done", True) for one in made[:3]]
    pending += [batch.on(made[4]).increment("text"), batch.on(made[3]).set("done", True)]
    with pytest.raises(TypeMismatchError) as raised:
        await batch.__aexit__(None, None, None)
    assert raised.value.__notes__ == ["2 of the 5 calls of this batch failed; this is the first"]
    assert [type(one.error) for one in pending] == [type(None)] * 3 + [TypeMismatchError, SessionNotFoundError]
    assert [await one.get("done") for one in made[:3]] == [True] * 3
    with pytest.raises(SessionNotFoundError):
        pending[4].result()


async def test_without_check_each_is_asked(small_cache: SessionCache) -> None:
    async with small_cache.batch(check=False) as batch:
        missing, made = batch.get("ada", "none"), batch.create("ada", session_id="s1")
    assert isinstance(missing.error, SessionNotFoundError)
    assert made.error is None
    assert made.result().id == "s1"


async def test_an_error_in_the_block_sends_nothing(small_cache: SessionCache) -> None:
    batch = small_cache.batch()
    await batch.__aenter__()
    pending = batch.create("ada", session_id="s1")
    await batch.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
    with pytest.raises(ConfigurationError, match="was not sent"):
        pending.result()
    with pytest.raises(SessionNotFoundError):
        await small_cache.get("ada", "s1")


async def test_wrong_use_is_told_at_once(small_cache: SessionCache, small_urls: Urls) -> None:
    made = await small_cache.create("ada")
    batch = small_cache.batch()
    with pytest.raises(ConfigurationError, match="has not begun"):
        batch.on(made).set("a", 1)
    async with batch, connect(small_urls) as other:
        pending = batch.on(made).set("a", 1)
        with pytest.raises(ConfigurationError, match="after the block"):
            pending.result()
        with pytest.raises(InvalidNameError):
            batch.get("ada", "")
        with pytest.raises(ConfigurationError, match="has begun already"):
            await batch.__aenter__()
        for wrong in (await other.create("ada"), small_cache, None):
            with pytest.raises(ConfigurationError, match="of its own cache"):
                batch.on(wrong)  # type: ignore[arg-type]
    assert pending.error is None
    with pytest.raises(ConfigurationError, match="was used already"):
        batch.on(made).set("a", 2)
    with pytest.raises(ConfigurationError, match="was used already"):
        async with batch:
            pass


async def test_a_cancelled_batch_leaves_no_call_behind(small_cache: SessionCache, valkey: RedisServer) -> None:
    made = [await small_cache.create("ada", session_id=f"s{n}") for n in range(50)]
    before = asyncio.all_tasks()
    pending: list[Pending[int]] = []

    async def send() -> None:
        async with small_cache.batch() as batch:
            pending.extend(batch.on(one).set("a", 1) for one in made)

    line = small_cache._tiers.link._line
    assert line is not None
    valkey.pause()
    try:
        task = asyncio.ensure_future(send())
        await wait_until_async(lambda: not line.idle, 5, "the calls are on their way")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == before
    finally:
        valkey.resume()
    with pytest.raises(ConfigurationError, match="was cancelled"):
        pending[0].result()
    await made[0].set("b", 1)


async def test_cold_sessions_are_brought_in(urls: Urls) -> None:
    async with connect(urls) as first:
        async with first.batch() as batch:
            for n in range(60):
                batch.create(f"user{n}", session_id="s", state={"n": n, "user:u": n})
        await drain(urls)
    evict(urls.redis)
    async with connect(urls) as cache, cache.batch() as batch:
        found = [batch.get(f"user{n}", "s") for n in range(60)]
    assert [dict(one.result().state) for one in found] == [{"n": n, "user:u": n} for n in range(60)]


async def test_each_call_has_its_own_time_from_when_it_is_made(small_urls: Urls, valkey: RedisServer) -> None:
    async with connect(small_urls, timeout=0.8) as cache:
        made = await cache.create("ada", state={"b": 1})
        batch = cache.batch(check=False)
        await batch.__aenter__()
        first, second = batch.on(made).get("a"), batch.on(made).get("b")
        valkey.pause()
        try:
            sending = asyncio.ensure_future(batch.__aexit__(None, None, None))
            await wait_until_async(lambda: not first._state, 10, "the first call has run out of time")
        finally:
            valkey.resume()
        await sending
    assert isinstance(first.error, HotTierUnavailableError)
    assert second.result() == 1


def test_a_synchronous_batch_takes_one_hop(small_urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.SessionCache.connect(small_urls.redis, small_urls.database, app="app", timeout=stretched(5.0)) as cache:
        sessions = [cache.create("ada", session_id=f"s{n}") for n in range(20)]
        call, hops = Portal.call, 0

        def counted(portal: Portal, work: Any) -> Any:
            nonlocal hops
            hops += 1
            return call(portal, work)

        monkeypatch.setattr(Portal, "call", counted)
        with cache.batch() as batch:
            for one in sessions:
                batch.on(one).set("a", 1)
            found, space = batch.get("ada", "s0"), batch.on(sessions[0].namespace("tools")).items()
        assert hops == 1
        assert found.result() is found.result()
        assert (found.result().state["a"], space.result()) == (1, [])


def test_a_synchronous_batch_is_sent_at_once(small_urls: Urls) -> None:
    with sync.SessionCache.connect(small_urls.redis, small_urls.database, app="app", timeout=stretched(5.0)) as cache:
        with cache.batch() as batch:
            made = [batch.create("ada", session_id=f"s{n}", state={"n": n}) for n in range(50)]
        sessions = [one.result() for one in made]
        with cache.batch() as batch:
            counts = [batch.on(one).increment("n") for one in sessions]
            touched = batch.on(sessions[0]).touch(tokens=3)
            found = batch.get_or_create("ada", "s7")
        assert [one.result() for one in counts] == [n + 1 for n in range(50)]
        assert touched.result().token_total == 3
        session, created = found.result()
        assert (type(session), created) == (sync.Session, False)
        with pytest.raises(SessionNotFoundError), cache.batch() as batch:
            batch.get("ada", "none")
        with cache.batch() as batch, pytest.raises(ConfigurationError):
            batch.on(cache)  # type: ignore[call-overload]


def test_a_batch_from_before_a_fork_writes_nothing_in_the_child(small_urls: Urls) -> None:
    with sync.SessionCache.connect(small_urls.redis, small_urls.database, app="app", timeout=stretched(5.0)) as cache:
        session = cache.create("ada", session_id="s1")
        batch = cache.batch()
        batch.__enter__()
        batch.on(session).set("a", 1)

        def work() -> object:
            with pytest.raises(ConfigurationError, match="before this process was forked"):
                batch.__exit__(None, None, None)
            with cache.batch() as own:
                own.on(session).set("b", 2)
            return session.get("a"), session.get("b")

        assert in_child(work) == [None, 2]
        batch.__exit__(None, None, None)
        assert (session.get("a"), session.get("b")) == (1, 2)
