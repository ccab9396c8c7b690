"""Batches: many sessions' calls in shared round trips, each of which fails alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessioncache import (
    ConfigurationError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    InvalidNameError,
    SessionCache,
    SessionNotFoundError,
    TypeMismatchError,
    sync,
)
from sessioncache.batch import Pending
from sessioncache.hot.line import Line
from tests.helpers import Urls, connect, drain, evict
from tests.servers import RedisServer
from tests.waiting import wait_until_async


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
    leave, sizes = Line._leave, list[int]()

    def counted(line: Line) -> None:
        sizes.append(len(line._leaving))
        leave(line)

    monkeypatch.setattr(Line, "_leave", counted)
    async with cache.batch() as batch:
        results = [batch.on(one).set("n", n) for n in range(10) for one in made]
    assert len({pending.result() for pending in results}) > 1
    assert sum(sizes) >= 1_000
    assert len(sizes) < 200
    assert [await one.get("n") for one in made] == [9] * 100


async def test_calls_on_one_scope_are_made_in_their_order(small_cache: SessionCache) -> None:
    made = await small_cache.create("ada", session_id="s1", state={"log": []})
    async with small_cache.batch() as batch:
        for n in range(300):
            batch.on(made).append("log", n)
        batch.rename("ada", "s1", "renamed")
        read = batch.get("ada", "s1")
        deleted = batch.delete("ada", "s1")
        again = batch.create("ada", session_id="s1")
    assert read.result().state["log"] == list(range(300))
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
            for n in range(200):
                batch.create(f"user{n}", session_id="s", state={"n": n, "user:u": n})
        await drain(urls)
    evict(urls.redis)
    async with connect(urls) as cache, cache.batch() as batch:
        found = [batch.get(f"user{n}", "s") for n in range(200)]
    assert [dict(one.result().state) for one in found] == [{"n": n, "user:u": n} for n in range(200)]


async def test_a_tier_that_is_away_fails_the_calls_that_need_it(small_urls: Urls, valkey: RedisServer) -> None:
    async with connect(small_urls, timeout=0.5) as cache:
        made = await cache.create("ada")
        valkey.pause()
        try:
            async with cache.batch(check=False) as batch:
                pending = [batch.on(made).get("a"), batch.on(made).get("b")]
        finally:
            valkey.resume()
        for one in pending:
            assert isinstance(one.error, (HotTierUnavailableError, DurableTierUnavailableError))


def test_a_synchronous_batch_is_sent_at_once(small_urls: Urls) -> None:
    with sync.SessionCache.connect(small_urls.redis, small_urls.database, app="app") as cache:
        with cache.batch() as batch:
            made = [batch.create("ada", session_id=f"s{n}", state={"n": n}) for n in range(50)]
        sessions = [one.result() for one in made]
        with cache.batch() as batch:
            counts = [batch.on(one).increment("n") for one in sessions]
            found = batch.get_or_create("ada", "s7")
        assert [one.result() for one in counts] == [n + 1 for n in range(50)]
        session, created = found.result()
        assert (type(session), created) == (sync.Session, False)
        with pytest.raises(SessionNotFoundError), cache.batch() as batch:
            batch.get("ada", "none")
        with cache.batch() as batch, pytest.raises(ConfigurationError):
            batch.on(cache)  # type: ignore[arg-type]
