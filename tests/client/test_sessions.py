"""Sessions: create, get, get_or_create, delete, and what a session says of itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessioncache import SessionCache, SessionExistsError, SessionNotFoundError
from tests.helpers import Urls, connect, drain, evict, fetch, session


async def test_what_was_created_can_be_got_by_another_process(cache: SessionCache, urls: Urls) -> None:
    state: dict[str, Any] = {"step": 1, "user:language": "en", "app:motd": None, "temp:call": [1]}
    made = await cache.create("ada", session_id="s1", state=state, title="A trip")
    assert dict(made.state) == state
    async with connect(urls) as other:
        found = await other.get("ada", "s1")
    assert dict(found.state) == state
    assert (found.id, found.user, found.app, found.org, found.title) == ("s1", "ada", "app", "", "A trip")
    assert found.info == made.info
    assert found.revision == made.revision


async def test_a_generated_id_is_new_each_time(cache: SessionCache) -> None:
    first, second = await cache.create("ada"), await cache.create("ada")
    assert first.id != second.id
    assert first.id.startswith("sess_")


async def test_a_taken_id_is_refused_and_nothing_is_changed(cache: SessionCache) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1}, title="old")
    with pytest.raises(SessionExistsError) as told:
        await cache.create("ada", session_id="s1", state={"a": 2, "user:u": 2, "app:p": 2, "temp:t": 2}, title="new")
    assert told.value.session_id == "s1"
    found = await cache.get("ada", "s1")
    assert dict(found.state) == {"a": 1, "user:u": 1, "app:p": 1}
    assert found.title == "old"


async def test_a_taken_id_is_refused_also_when_only_sql_has_it(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    await drain(urls)
    evict(urls.redis)
    with pytest.raises(SessionExistsError):
        await cache.create("ada", session_id="s1", state={"a": 2})
    assert dict((await cache.get("ada", "s1")).state) == {"a": 1}


async def test_users_may_use_the_same_session_id(cache: SessionCache) -> None:
    await cache.create("ada", session_id="s1", state={"who": "ada"})
    await cache.create("bob", session_id="s1", state={"who": "bob"})
    assert await (await cache.get("ada", "s1")).get("who") == "ada"
    assert await (await cache.get("bob", "s1")).get("who") == "bob"


async def test_not_found_looks_the_same_for_another_users_session(cache: SessionCache) -> None:
    await cache.create("ada", session_id="s1")
    with pytest.raises(SessionNotFoundError) as foreign:
        await cache.get("bob", "s1")
    await cache.delete("ada", "s1")
    with pytest.raises(SessionNotFoundError) as none:
        await cache.get("bob", "s1")
    assert str(foreign.value) == str(none.value)
    assert vars(foreign.value) == vars(none.value)


async def test_reading_the_unknown_creates_nothing(cache: SessionCache, urls: Urls) -> None:
    with pytest.raises(SessionNotFoundError):
        await cache.get("ada", "s1")
    assert await cache.delete("ada", "s1") is False
    assert await cache.user_scope("ada").get("x") is None
    assert await drain(urls) == 0
    for table in ("state", "session", "user_scope", "app_scope"):
        assert fetch(urls.database, f"SELECT count(*) FROM sessioncache_{table}") == [(0,)]
    assert (await cache.list()).items == []


async def test_get_or_create_resets_nothing(cache: SessionCache) -> None:
    first, created = await cache.get_or_create("ada", "s1", state={"a": 1}, title="first")
    assert created
    await first.set("b", 2)
    second, created = await cache.get_or_create("ada", "s1", state={"a": 9, "c": 9}, title="second")
    assert not created
    assert dict(second.state) == {"a": 1, "b": 2}
    assert second.title == "first"


async def test_delete_tells_whether_the_session_existed(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="hot")
    assert await cache.delete("ada", "hot") is True
    assert await cache.delete("ada", "hot") is False
    await cache.create("ada", session_id="cold")
    await drain(urls)
    evict(urls.redis)
    assert await cache.delete("ada", "cold") is True
    await drain(urls)
    evict(urls.redis)
    assert await cache.delete("ada", "cold") is False


async def test_a_deleted_session_takes_its_private_keys_and_leaves_the_shared_ones(cache: SessionCache) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
    await cache.delete("ada", "s1")
    with pytest.raises(SessionNotFoundError):
        await cache.get("ada", "s1")
    again = await cache.create("ada", session_id="s1")
    await again.refresh()
    assert dict(again.state) == {"user:u": 1, "app:p": 1}


async def test_every_call_of_a_handle_fails_once_its_session_was_deleted(cache: SessionCache) -> None:
    old = await cache.create("ada", session_id="s1", state={"a": 1, "n": 1, "l": []})
    await cache.delete("ada", "s1")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: old.get("a"),
        lambda: old.get("user:u"),
        lambda: old.get("temp:t"),
        lambda: old.set("a", 2),
        lambda: old.set("user:u", 2),
        lambda: old.set("app:p", 2),
        lambda: old.set("temp:t", 2),
        lambda: old.delete("a"),
        lambda: old.increment("n"),
        lambda: old.append("l", 1),
        old.refresh,
    ]
    for call in calls:
        with pytest.raises(SessionNotFoundError):
            await call()
    assert await cache.user_scope("ada").get("u") is None
    assert await cache.app_scope().get("p") is None


async def test_an_old_handle_reaches_nothing_of_the_next_life(cache: SessionCache, urls: Urls) -> None:
    old = await cache.create("ada", session_id="s1", state={"a": "old", "temp:t": "old"})
    await cache.delete("ada", "s1")
    new = await cache.create("ada", session_id="s1", state={"b": "new"})
    assert dict(new.state) == {"b": "new"}
    for key in ("a", "b", "user:u", "app:p", "temp:t"):
        with pytest.raises(SessionNotFoundError):
            await old.set(key, "intruder")
        with pytest.raises(SessionNotFoundError):
            await old.get(key)
    await new.refresh()
    assert dict(new.state) == {"b": "new"}
    await drain(urls)
    evict(urls.redis)
    with pytest.raises(SessionNotFoundError):
        await old.set("a", "intruder")
    assert dict((await cache.get("ada", "s1")).state) == {"b": "new"}


async def test_times_are_equal_hot_cold_and_in_sql_to_the_microsecond(cache: SessionCache, urls: Urls) -> None:
    before = datetime.now(UTC)
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.set("a", 2)
    hot = (await cache.get("ada", "s1")).info
    assert before - timedelta(seconds=1) < hot.created_at < hot.updated_at < datetime.now(UTC) + timedelta(seconds=1)
    assert hot == made.info
    assert (await cache.list("ada")).items == [hot]
    await drain(urls)
    assert (await cache.list("ada")).items == [hot]
    evict(urls.redis)
    assert (await cache.get("ada", "s1")).info == hot
    query = "SELECT birth, updated FROM sessioncache_session WHERE scope_id = ?"
    ((birth, updated),) = fetch(urls.database, query, session("ada", "s1").id)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert (hot.created_at - epoch) // timedelta(microseconds=1) == birth
    assert (hot.updated_at - epoch) // timedelta(microseconds=1) == updated


async def test_only_the_sessions_own_keys_move_updated_at_and_revision(cache: SessionCache) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    before = (made.updated_at, made.revision)
    for key in ("user:u", "app:p", "temp:t"):
        await made.set(key, 1)
        await made.delete(key)
    assert (made.updated_at, made.revision) == before
    found = await cache.get("ada", "s1")
    assert (found.updated_at, found.revision) == before
    revision = await found.update({"a": 2, "user:u": 2})
    assert found.revision == revision > before[1]
    assert found.updated_at > before[0]
    assert found.created_at == made.created_at
    again = await cache.get("ada", "s1")
    assert (again.updated_at, again.revision) == (found.updated_at, revision)


async def test_deleting_an_absent_key_moves_nothing(cache: SessionCache) -> None:
    made = await cache.create("ada", session_id="s1")
    before = (made.updated_at, made.revision)
    assert await made.delete("nothing") is False
    found = await cache.get("ada", "s1")
    assert (found.updated_at, found.revision) == before


async def test_a_cache_bound_to_another_tenant_sees_nothing_of_this_one(cache: SessionCache) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1})
    for other in (cache.bound_to(org="other"), cache.bound_to(app="other"), cache.bound_to(org="app", app="")):
        with pytest.raises(SessionNotFoundError):
            await other.get("ada", "s1")
        assert await other.delete("ada", "s1") is False
        assert (await other.list()).items == []
        assert (await other.list("ada")).items == []
        mine = await other.create("ada", session_id="s1")
        await mine.refresh()
        assert dict(mine.state) == {}
        await mine.update({"a": 2, "user:u": 2, "app:p": 2})
        await other.aclose()
    found = await cache.get("ada", "s1")
    assert dict(found.state) == {"a": 1, "user:u": 1, "app:p": 1}


async def test_names_of_any_characters_stay_apart(cache: SessionCache, urls: Urls) -> None:
    names = ["", "a", "A", "a ", " a", "{a}", "a:b", "é", "e\u0301", "😀", "\n", "x" * 256]
    for name in names:
        await cache.create(name, session_id=name or "empty", state={"k": name, name or "e": 1})
    await drain(urls)
    evict(urls.redis)
    for name in names:
        found = await cache.get(name, name or "empty")
        assert dict(found.state) == {"k": name, name or "e": 1}
        assert found.user == name
    assert sorted(one.user for one in (await cache.list()).items) == sorted(names)
