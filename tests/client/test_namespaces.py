"""Namespaces: named parts of a session's private keys, hot and cold, through every way to write and read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache import (
    FlushTimeoutError,
    InvalidNameError,
    InvalidValueError,
    LimitExceededError,
    Session,
    SessionCache,
    SessionNotFoundError,
    StaleSessionError,
    TypeMismatchError,
    WriteLostError,
)
from sessioncache.namespace import Namespace
from tests.helpers import (
    Urls,
    app,
    connect,
    drain,
    evict,
    fetch,
    in_calls,
    open_worker,
    raw,
    session,
    settle,
    stored_namespaces,
    stored_values,
    user,
)


@pytest.fixture
async def made(cache: SessionCache) -> Session:
    """A session."""
    return await cache.create("ada", session_id="s1")


@pytest.fixture
def skills(made: Session) -> Namespace:
    """A namespace of it."""
    return made.namespace("skills")


async def values(cache: SessionCache, name: str = "skills", session_id: str = "s1") -> dict[str, Any]:
    """What a new handle sees of a namespace."""
    return dict(await (await cache.get("ada", session_id)).namespace(name).items())


async def test_every_call_works_on_a_namespace_hot_unflushed_and_cold(
    cache: SessionCache, skills: Namespace, urls: Urls
) -> None:
    for step in range(3):
        assert await skills.get("absent", "default") == "default"
        await skills.update({"a": {"x": [step]}, "b": None, "n": 1.0, "l": []}, delete=["gone"])
        assert await skills.increment("n", 2) == 3.0
        assert await skills.append("l", 1, [2]) == 2
        revision = await skills.set("gone", step)
        assert await skills.delete("gone") is True
        assert await skills.delete("gone") is False
        assert skills.revision > revision
        async with skills.edit() as draft:
            draft["a"]["x"].append("edited")
            del draft["b"]
        expected = {"a": {"x": [step, "edited"]}, "n": 3.0, "l": [1, [2]]}
        assert dict(skills.state) == expected
        assert await values(cache) == expected
        if step == 0:
            await drain(urls)
        elif step == 1:
            await settle(urls)
    await settle(urls)
    assert await values(cache) == expected
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": expected}


async def test_prefixes_mean_nothing_in_a_namespace(cache: SessionCache, skills: Namespace, urls: Urls) -> None:
    keys = ["user:x", "app:x", "temp:x", "user:", "app:", "temp:", ":", "!", "=", "r", "=x", "x"]
    await skills.update({key: key for key in keys})
    await settle(urls)
    assert await skills.items() == sorted((key, key) for key in keys)
    found = await cache.get("ada", "s1")
    assert dict(found.state) == {}
    assert (await cache.user_scope("ada").get("x"), await cache.app_scope().get("x")) == (None, None)
    assert stored_values(urls.database, session("ada", "s1")) == {}
    assert not stored_values(urls.database, user("ada"))
    assert not stored_values(urls.database, app())
    with raw(urls.redis) as client:
        assert not list(client.scan_iter(match="*:temp:*"))


async def test_namespaces_and_plain_keys_are_apart(cache: SessionCache, made: Session, urls: Urls) -> None:
    names = ["a", "A", "a ", " a", "user:", "é", "e\u0301", "😀", "x" * 256]
    await made.set("k", "plain")
    for name in names:
        await made.namespace(name).update({"k": name, name: 1})
    await (await cache.create("ada", session_id="s2")).namespace("a").set("k", "of another session")
    await (await cache.create("bob", session_id="s1")).namespace("a").set("k", "of another user")
    for _ in range(2):
        for name in names:
            assert await values(cache, name) == {"k": name, name: 1}
        assert dict((await cache.get("ada", "s1")).state) == {"k": "plain"}
        await settle(urls)
    stored = stored_namespaces(urls.database, session("ada", "s1"))
    assert stored == {"": {"k": "plain"}, **{name: {"k": name, name: 1} for name in names}}


async def test_items_are_sorted_by_key_and_fresh(cache: SessionCache, skills: Namespace) -> None:
    await skills.update({"b": 1, "B": 2, "a": 3, "é": 4, "aa": 5, "10": 6, "9": 7})
    await (await cache.get("ada", "s1")).namespace("skills").set("c", 8)
    assert await skills.items() == [("10", 6), ("9", 7), ("B", 2), ("a", 3), ("aa", 5), ("b", 1), ("c", 8), ("é", 4)]


async def test_clear_counts_what_it_deletes_and_leaves_the_rest_of_the_session(
    cache: SessionCache, made: Session, urls: Urls
) -> None:
    skills, tools = made.namespace("skills"), made.namespace("tools")
    for cold in (False, True):
        await made.update({"a": 1, "user:u": 1, "temp:t": 1})
        await tools.set("a", 1)
        await skills.update({"a": 1, "b": 2, "c": 3})
        await skills.delete("c")
        if cold:
            await settle(urls)
        assert await skills.clear() == 2
        assert await skills.clear() == 0
        assert dict(skills.state) == {}
        assert await skills.items() == []
        await settle(urls)
        assert await values(cache) == {}
        assert await values(cache, "tools") == {"a": 1}
        assert stored_namespaces(urls.database, session("ada", "s1")) == {"": {"a": 1}, "tools": {"a": 1}}


async def test_a_namespace_leaves_the_revision_of_its_session_and_moves_updated_at(
    cache: SessionCache, made: Session, skills: Namespace, urls: Urls
) -> None:
    await made.set("a", 1)
    revision, updated = made.revision, made.updated_at
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: skills.set("a", 1),
        lambda: skills.increment("n"),
        lambda: skills.append("l", 1),
        lambda: skills.delete("a"),
        skills.clear,
    ]
    for change in changes:
        await change()
        hot = await cache.get("ada", "s1")
        assert hot.revision == revision
        assert hot.updated_at > updated
        updated = hot.updated_at
        assert (await cache.list("ada")).items == [hot.info]
        await drain(urls)
        assert (await cache.list("ada")).items == [hot.info]
        evict(urls.redis)
        cold = await cache.get("ada", "s1")
        assert (cold.info, cold.revision) == (hot.info, revision)
        await made.update({}, if_revision=revision)


async def test_what_changes_nothing_in_a_namespace_moves_nothing(cache: SessionCache, skills: Namespace) -> None:
    await skills.set("a", 1)
    before = (await cache.get("ada", "s1")).info
    assert await skills.delete("absent") is False
    await skills.update({}, delete=["absent"])
    await skills.items()
    async with skills.edit() as draft:
        assert draft["a"] == 1
    assert await (await cache.get("ada", "s1")).namespace("empty").clear() == 0
    assert (await cache.get("ada", "s1")).info == before


async def test_a_write_to_a_namespace_on_another_revision_is_refused(
    cache: SessionCache, made: Session, skills: Namespace, urls: Urls
) -> None:
    assert skills.revision == 0, "never read"
    first = await skills.update({"a": 1}, if_revision=0)
    with pytest.raises(StaleSessionError):
        await skills.update({"a": 1}, if_revision=0)
    await made.set("a", 1)
    await made.namespace("tools").set("a", 1)
    second = await skills.update({"a": 2}, if_revision=first)
    with pytest.raises(StaleSessionError):
        await skills.update({"a": 3}, delete=["b"], if_revision=first)
    await settle(urls)
    with pytest.raises(StaleSessionError):
        await skills.update({"a": 3}, if_revision=first)
    await skills.refresh()
    assert skills.revision >= second, "never an earlier one, so that what was refused stays refused"
    await skills.update({"a": 3}, if_revision=skills.revision)
    assert await values(cache) == {"a": 3}


async def test_an_edit_of_a_namespace_conflicts_on_the_keys_it_changed(cache: SessionCache, skills: Namespace) -> None:
    await skills.update({"a": 1, "b": 1})
    other = (await cache.get("ada", "s1")).namespace("skills")

    async def conflict() -> None:
        async with skills.edit() as draft:
            await other.set("a", 2)
            draft["a"] = draft["b"] = 3

    with pytest.raises(StaleSessionError) as told:
        await conflict()
    assert told.value.keys == ("a",)
    assert await values(cache) == {"a": 2, "b": 1}


async def test_wrong_values_and_types_are_refused_and_nothing_is_applied(
    cache: SessionCache, skills: Namespace
) -> None:
    await skills.update({"t": "text"})
    with pytest.raises(InvalidValueError):
        await skills.update({"a": 1, "b": {1, 2}})  # type: ignore[dict-item]
    with pytest.raises(TypeMismatchError):
        await skills.increment("t")
    with pytest.raises(TypeMismatchError):
        await skills.append("t", 1)
    assert await values(cache) == {"t": "text"}


@pytest.mark.parametrize("name", ["", "x" * 257, "é" * 129, "a\0b", "\ud800", 1, None, b"a"])
async def test_a_wrong_name_of_a_namespace_or_of_a_key_in_it_is_refused(
    made: Session, skills: Namespace, name: Any
) -> None:
    with pytest.raises(InvalidNameError):
        made.namespace(name)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: skills.get(name),
        lambda: skills.set(name, 1),
        lambda: skills.update({"ok": 1}, delete=[name]),
        lambda: skills.delete(name),
        lambda: skills.increment(name),
        lambda: skills.append(name, 1),
    ]
    for call in calls:
        with pytest.raises(InvalidNameError):
            await call()
    assert await skills.items() == []


async def test_limits_count_for_each_namespace_and_clear_makes_room(urls: Urls) -> None:
    full = {f"k{number}": number for number in range(20_000)}
    async with connect(urls, timeout=30) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        skills = made.namespace("skills")
        for some in in_calls(full):
            await skills.update(some)
        with pytest.raises(LimitExceededError):
            await skills.set("more", 1)
        with pytest.raises(LimitExceededError):
            await skills.set("k0", "x" * 1024 * 1024)
        await made.set("b", 1)
        await made.namespace("tools").set("a", 1)
        await settle(urls)
        assert await skills.clear() == 20_000
        await skills.set("more", 1)
        await settle(urls)
        assert await values(cache) == {"more": 1}
        assert stored_namespaces(urls.database, session("ada", "s1")) == {
            "": {"a": 1, "b": 1},
            "skills": {"more": 1},
            "tools": {"a": 1},
        }


# ---- lives


async def test_every_call_of_a_namespace_fails_once_its_session_was_deleted(
    cache: SessionCache, skills: Namespace, urls: Urls
) -> None:
    await skills.update({"a": 1, "n": 1, "l": []})
    await cache.delete("ada", "s1")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: skills.get("a"),
        lambda: skills.set("a", 2),
        lambda: skills.delete("a"),
        lambda: skills.increment("n"),
        lambda: skills.append("l", 1),
        skills.refresh,
        skills.items,
        skills.clear,
    ]
    for _ in range(2):
        for call in calls:
            with pytest.raises(SessionNotFoundError) as told:
                await call()
            assert told.value.session_id == "s1"
        await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "s1")) is None
    query = "SELECT count(*) FROM sessioncache_state WHERE scope_id = ?"
    assert fetch(urls.database, query, session("ada", "s1").id) == [(0,)]


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "unflushed"])
async def test_a_new_life_has_no_namespaces_of_the_old_one(
    cache: SessionCache, skills: Namespace, urls: Urls, flushed: bool
) -> None:
    await skills.update({"a": "old", "both": "old"})
    if flushed:
        await drain(urls)
    await cache.delete("ada", "s1")
    again = await cache.create("ada", session_id="s1")
    new = again.namespace("skills")
    assert await new.items() == []
    for write in (skills.set("a", "intruder"), skills.clear(), skills.get("a")):
        with pytest.raises(SessionNotFoundError):
            await write
    await new.set("both", "new")
    assert await values(cache) == {"both": "new"}
    await settle(urls)
    with pytest.raises(SessionNotFoundError):
        await skills.set("a", "intruder")
    assert await values(cache) == {"both": "new"}
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"both": "new"}}


async def test_lives_that_no_worker_has_flushed_leave_only_the_last_ones_namespaces(
    cache: SessionCache, urls: Urls
) -> None:
    for life in range(3):
        made = await cache.create("ada", session_id="s1")
        await made.namespace("skills").update({f"k{life}": life, "same": life})
        await cache.delete("ada", "s1")
    made = await cache.create("ada", session_id="s1")
    await made.namespace("skills").set("last", True)
    await settle(urls)
    assert await values(cache) == {"last": True}
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"last": True}}


async def test_a_cold_session_is_deleted_with_its_cold_namespaces(
    cache: SessionCache, skills: Namespace, urls: Urls
) -> None:
    await skills.set("a", 1)
    await settle(urls)
    assert await cache.delete("ada", "s1") is True
    await settle(urls)
    assert stored_namespaces(urls.database, session("ada", "s1")) is None
    again = await cache.create("ada", session_id="s1")
    assert await again.namespace("skills").items() == []


async def test_a_namespace_is_evicted_and_loaded_by_itself(
    cache: SessionCache, made: Session, skills: Namespace, urls: Urls
) -> None:
    await skills.set("a", 1)
    await drain(urls)
    with raw(urls.redis) as client:
        (own,) = client.keys("sessioncache:*:h:n*")
        client.delete(own)
        assert await skills.get("a") == 1
        client.delete(*client.keys("sessioncache:*:h:s*"))
        assert await skills.increment("a") == 2
    assert await values(cache) == {"a": 2}


# ---- durability


async def test_flush_of_a_namespace_is_true(cache: SessionCache, skills: Namespace, urls: Urls) -> None:
    await skills.update({"a": 1, "b": 2})
    await skills.delete("b")
    async with open_worker(urls, flush_delay=0.02) as worker:
        await worker.flush_once()
        await skills.flush(60)
        assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"a": 1}}
        await skills.clear()
        await worker.flush_once()
        await skills.flush(60)
        await cache.flush(60)
    assert stored_namespaces(urls.database, session("ada", "s1")) == {}


@pytest.mark.parametrize("born_again", [False, True], ids=["deleted", "created again"])
async def test_flush_waits_for_the_tombstone_of_a_session_whose_namespace_was_written(
    cache: SessionCache, made: Session, skills: Namespace, urls: Urls, born_again: bool
) -> None:
    await drain(urls)
    await skills.set("a", 1)
    await cache.delete("ada", "s1")
    if born_again:
        await (await cache.create("ada", session_id="s1")).namespace("skills").items()
    with pytest.raises(FlushTimeoutError):
        await skills.flush(0.5)
    await drain(urls)
    await skills.flush(5)
    await cache.flush(60)


async def test_flush_tells_of_a_namespaces_write_that_redis_lost(
    cache: SessionCache, skills: Namespace, urls: Urls
) -> None:
    await skills.set("kept", 1)
    await drain(urls)
    await skills.set("lost", 1)
    with raw(urls.redis) as client:
        client.flushall()
    with pytest.raises(WriteLostError):
        await skills.flush(3)
    assert await skills.items() == [("kept", 1)]
    await skills.set("lost", 2)
    await drain(urls)
    await skills.flush(60)
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"kept": 1, "lost": 2}}
