"""Upkeep of sessions: touch, rename and clear."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessioncache import (
    FlushTimeoutError,
    InvalidNameError,
    InvalidValueError,
    LimitExceededError,
    Session,
    SessionCache,
    SessionInfo,
    SessionNotFoundError,
    StaleSessionError,
    WriteLostError,
)
from tests.helpers import (
    Urls,
    connect,
    drain,
    evict,
    fetch,
    raw,
    session,
    settle,
    stored_namespaces,
    stored_values,
    user,
)

_ROW = "SELECT title, message_count, token_total, updated, values_revision FROM sessioncache_session WHERE scope_id = ?"


@pytest.fixture
async def made(cache: SessionCache) -> Session:
    """A session with values in every scope."""
    state: dict[str, Any] = {"a": 1, "b": [2], "user:u": 1, "app:p": 1, "temp:t": 1}
    made = await cache.create("ada", session_id="s1", state=state)
    await made.namespace("skills").set("k", 1)
    await made.refresh()
    return made


def counts(info: SessionInfo) -> tuple[int, int]:
    """Messages and tokens."""
    return info.message_count, info.token_total


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


# ---- touch


async def test_touch_adds_to_the_counters_and_moves_updated_at_only(cache: SessionCache, made: Session) -> None:
    before, state = made.info, dict(made.state)
    assert counts(before) == (0, 0)
    for messages, tokens, expected in ((1, 20, (1, 20)), (2, 0, (3, 20)), (0, 5, (3, 25)), (0, 0, (3, 25))):
        told = await cache.touch("ada", "s1", messages=messages, tokens=tokens)
        assert counts(told) == expected
        found = await cache.get("ada", "s1")
        assert found.info == told
        assert told.updated_at > before.updated_at
        assert (told.created_at, found.revision) == (before.created_at, made.revision)
        before = told
    assert dict(found.state) == state


async def test_touch_through_a_handle_is_seen_in_it_and_is_of_its_life(cache: SessionCache, made: Session) -> None:
    told = await made.touch(messages=2, tokens=3)
    assert told == made.info == (await cache.get("ada", "s1")).info
    assert (made.message_count, made.token_total, made.updated_at) == (2, 3, told.updated_at)
    await cache.touch("ada", "s1", messages=1)
    assert made.message_count == 2, "as last read"
    await made.refresh()
    assert made.message_count == 3
    await cache.delete("ada", "s1")
    await cache.create("ada", session_id="s1")
    for call in (made.touch(messages=1), made.rename("x"), made.clear()):
        with pytest.raises(SessionNotFoundError):
            await call
    assert counts((await cache.get("ada", "s1")).info) == (0, 0)


async def test_what_touch_and_rename_change_is_equal_hot_cold_and_in_sql(
    cache: SessionCache, made: Session, urls: Urls
) -> None:
    await made.touch(messages=3, tokens=7, first_message="Book a flight")
    for change in (made.touch(tokens=1), made.rename("Trip"), made.rename("")):
        told = await change
        assert (await cache.list("ada")).items == [told]
        await drain(urls)
        assert (await cache.list("ada")).items == [told]
        ((title, messages, tokens, updated, values),) = fetch(urls.database, _ROW, session("ada", "s1").id)
        assert (title, messages, tokens, updated) == (told.title, *counts(told), micros(told.updated_at))
        assert values == made.revision
        evict(urls.redis)
        cold = await cache.get("ada", "s1")
        assert (cold.info, cold.revision) == (told, made.revision)


@pytest.mark.parametrize("where", ["hot", "cold", "elsewhere"])
async def test_touch_finds_a_session_wherever_it_is(cache: SessionCache, made: Session, urls: Urls, where: str) -> None:
    if where == "cold":
        await settle(urls)
    async with connect(urls) as other:
        assert counts(await (other if where == "elsewhere" else cache).touch("ada", "s1", messages=1)) == (1, 0)
        assert (await cache.rename("ada", "s1", "named")).title == "named"
    await settle(urls)
    found = await cache.get("ada", "s1")
    assert (found.title, counts(found.info)) == ("named", (1, 0))
    assert found.state["a"] == 1


async def test_touching_naming_or_forking_what_is_not_there_creates_nothing(cache: SessionCache, urls: Urls) -> None:
    await cache.create("bob", session_id="s1")
    await cache.create("ada", session_id="gone")
    await cache.delete("ada", "gone")
    for name in ("s1", "gone"):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda name=name: cache.touch("ada", name, messages=1),  # type: ignore[misc]
            lambda name=name: cache.rename("ada", name, "x"),  # type: ignore[misc]
            lambda name=name: cache.fork("ada", name),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(SessionNotFoundError) as told:
                await call()
            assert told.value.session_id == name
    assert (await cache.list("ada")).items == []
    await settle(urls)
    assert (await cache.list("ada")).items == []


async def test_touches_at_once_are_all_counted(cache: SessionCache, made: Session, urls: Urls) -> None:
    async with connect(urls) as other:
        calls = [one.touch("ada", "s1", messages=1, tokens=n) for n in range(50) for one in (cache, other)]
        await asyncio.gather(*calls, *(made.touch(messages=1) for _ in range(50)))
    await settle(urls)
    assert counts((await cache.get("ada", "s1")).info) == (150, 2 * sum(range(50)))


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1", None])
async def test_touch_refuses_what_is_no_count(cache: SessionCache, made: Session, wrong: Any) -> None:
    for name in ("messages", "tokens"):
        for call in (cache.touch("ada", "s1", **{name: wrong}), made.touch(**{name: wrong})):
            with pytest.raises(InvalidValueError) as told:
                await call
            assert told.value.path == name
    assert counts((await cache.get("ada", "s1")).info) == (0, 0)


async def test_a_counter_has_at_most_fifteen_digits(cache: SessionCache, made: Session, urls: Urls) -> None:
    with pytest.raises(LimitExceededError):
        await made.touch(tokens=10**12 + 1)
    with raw(urls.redis) as client:
        (key,) = client.keys("sessioncache:*:h:s*")
        client.hset(key, "k", 10**15 - 10**12)
    assert (await made.touch(tokens=10**12 - 1)).token_total == 10**15 - 1
    await settle(urls)
    assert (await made.touch(messages=1)).token_total == 10**15 - 1


# ---- titles


async def test_the_first_message_gives_a_title_once(cache: SessionCache, made: Session) -> None:
    assert (await made.touch(messages=1)).title == ""
    assert (await made.touch(first_message="  Plan a trip\nto Rome ")).title == "Plan a trip to Rome"
    assert (await cache.touch("ada", "s1", first_message="Something else")).title == "Plan a trip to Rome"
    assert (await made.rename("Mine")).title == "Mine"
    assert (await made.touch(first_message="Something else")).title == "Mine"
    assert (await made.rename("")).title == ""
    assert (await made.touch(first_message="Again")).title == "Again"
    named = await cache.create("ada", session_id="named", title="Given")
    assert (await named.touch(first_message="Something else")).title == "Given"


@pytest.mark.parametrize("title", ["x" * 1024, "é" * 512, "", "  kept as it is \n", "😀"])
async def test_a_title_is_kept_verbatim(cache: SessionCache, made: Session, urls: Urls, title: str) -> None:
    assert (await cache.rename("ada", "s1", title)).title == title
    await settle(urls)
    assert (await cache.get("ada", "s1")).title == title


async def test_a_wrong_title_is_refused(cache: SessionCache, made: Session) -> None:
    wrong: list[tuple[Any, type[Exception]]] = [
        ("x" * 1025, LimitExceededError),
        ("a\0b", InvalidNameError),
        ("\ud800", InvalidNameError),
        (None, InvalidNameError),
    ]
    for title, error in wrong:
        for call in (cache.rename("ada", "s1", title), made.rename(title)):
            with pytest.raises(error):
                await call
    with pytest.raises(InvalidValueError) as told:
        await made.touch(first_message=b"bytes")  # type: ignore[arg-type]
    assert told.value.path == "first_message"
    assert (await cache.get("ada", "s1")).title == ""


# ---- clear


@pytest.mark.parametrize("where", ["unflushed", "flushed", "cold"])
async def test_clear_deletes_the_plain_private_keys_only(
    cache: SessionCache, made: Session, urls: Urls, where: str
) -> None:
    await made.set("c", 3)
    await made.delete("c")
    if where != "unflushed":
        await drain(urls)
    if where == "cold":
        evict(urls.redis)
    await made.touch(messages=2, first_message="Hello")
    before = made.info
    assert await made.clear() == 2
    assert dict(made.state) == {"user:u": 1, "app:p": 1, "temp:t": 1}
    found = await cache.get("ada", "s1")
    assert dict(found.state) == dict(made.state)
    assert await found.namespace("skills").items() == [("k", 1)]
    assert (found.title, counts(found.info), found.created_at) == (before.title, counts(before), before.created_at)
    assert found.updated_at > before.updated_at
    assert found.revision == made.revision
    await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"k": 1}}
    assert stored_values(urls.database, user("ada")) == {"u": 1}
    cold = await cache.get("ada", "s1")
    assert cold.info == found.info
    assert {"a", "b"}.isdisjoint(cold.state)


async def test_clearing_what_is_empty_changes_nothing(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"user:u": 1})
    before = (made.info, made.revision)
    assert await made.clear() == 0
    found = await cache.get("ada", "s1")
    assert (found.info, found.revision) == before


async def test_a_clear_makes_the_revision_of_others_stale(cache: SessionCache, made: Session) -> None:
    other = await cache.get("ada", "s1")
    await made.clear()
    with pytest.raises(StaleSessionError):
        await other.update({"x": 1}, if_revision=other.revision)
    await made.set("a", "after")
    assert await made.clear() == 1


# ---- flush


async def test_flush_waits_for_touch_rename_and_clear(cache: SessionCache, made: Session, urls: Urls) -> None:
    await drain(urls)
    for change in (lambda: made.touch(tokens=1), lambda: made.rename("x"), made.clear):
        await change()
        for flush in (made.flush, cache.flush):
            with pytest.raises(FlushTimeoutError):
                await flush(0.05)
        await drain(urls)
        await made.flush(5)
        await cache.flush(60)
    await cache.touch("ada", "s1", messages=5)
    with pytest.raises(FlushTimeoutError):
        await cache.flush(0.05)
    await drain(urls)
    await cache.flush(5)
    ((title, messages, tokens, *_),) = fetch(urls.database, _ROW, session("ada", "s1").id)
    assert (title, messages, tokens) == ("x", 5, 1)
    assert stored_values(urls.database, session("ada", "s1")) == {}


async def test_flush_tells_of_a_touch_and_of_a_clear_that_redis_lost(
    cache: SessionCache, made: Session, urls: Urls
) -> None:
    for change in (lambda: made.touch(tokens=1), made.clear):
        await drain(urls)
        await made.flush(60)
        await change()
        with raw(urls.redis) as client:
            client.flushall()
        with pytest.raises(WriteLostError):
            await made.flush(60)
    found = await cache.get("ada", "s1")
    assert (found.token_total, found.state["a"]) == (0, 1)
