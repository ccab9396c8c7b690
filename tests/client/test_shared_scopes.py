"""Shared state without a session: user_scope and app_scope."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from sessioncache import InvalidNameError, SessionCache, StaleSessionError
from tests.helpers import Urls, app, connect, drain, evict, stored_values, user


async def test_a_scope_is_what_sessions_see_under_its_prefix(cache: SessionCache) -> None:
    made = await cache.create("ada", state={"user:u": 1, "app:p": 1})
    mine, everyones = cache.user_scope("ada"), cache.app_scope()
    assert (await mine.get("u"), await everyones.get("p")) == (1, 1)
    await mine.update({"v": 2}, delete=["u"])
    assert await everyones.increment("p", 4) == 5
    await made.refresh()
    assert dict(made.state) == {"user:v": 2, "app:p": 5}


async def test_keys_of_a_scope_are_written_without_prefix(cache: SessionCache, urls: Urls) -> None:
    await cache.user_scope("ada").set("app:x", 1)
    await cache.app_scope().update({"user:x": 2, "temp:x": 3, "": 4})
    made = await cache.create("ada")
    await made.refresh()
    assert dict(made.state) == {"user:app:x": 1, "app:user:x": 2, "app:temp:x": 3, "app:": 4}
    await drain(urls)
    assert stored_values(urls.database, user("ada")) == {"app:x": 1}
    assert stored_values(urls.database, app()) == {"user:x": 2, "temp:x": 3, "": 4}


async def test_every_call_of_a_scope_works_cold(cache: SessionCache, urls: Urls) -> None:
    scope = cache.user_scope("ada")
    await scope.update({"n": 1, "l": [1], "gone": 1})
    for call in (
        lambda: scope.increment("n"),
        lambda: scope.append("l", 2),
        lambda: scope.delete("gone"),
        lambda: scope.set("s", 1),
        lambda: scope.refresh(),
    ):
        await drain(urls)
        evict(urls.redis)
        await call()
    assert dict(scope.state) == {"n": 2, "l": [1, 2], "s": 1}
    await drain(urls)
    assert stored_values(urls.database, user("ada")) == {"n": 2, "l": [1, 2], "s": 1}


async def test_a_scope_has_a_revision_of_its_own(cache: SessionCache) -> None:
    scope = cache.user_scope("ada")
    assert scope.revision == 0
    first = await scope.set("a", 1)
    await cache.user_scope("ada").set("b", 1)
    with pytest.raises(StaleSessionError):
        await scope.update({"a": 2}, if_revision=first)
    await scope.refresh()
    assert await scope.update({"a": 2}, if_revision=scope.revision) == scope.revision
    assert await cache.user_scope("ada").get("a") == 2


async def test_an_edit_of_a_scope_is_refused_when_a_key_changed(cache: SessionCache) -> None:
    scope = cache.app_scope()
    await scope.set("a", 1)

    async def conflict() -> None:
        async with scope.edit() as draft:
            await cache.app_scope().set("a", 2)
            draft["a"] = 3

    with pytest.raises(StaleSessionError) as told:
        await conflict()
    assert told.value.keys == ("a",)
    async with scope.edit() as draft:
        draft["a"] += 1
    assert await cache.app_scope().get("a") == 3


async def test_scopes_of_users_and_apps_are_their_own(cache: SessionCache) -> None:
    await cache.user_scope("ada").set("a", 1)
    await cache.app_scope().set("a", 2)
    assert await cache.user_scope("bob").get("a") is None
    assert await cache.user_scope("").get("a") is None
    assert await cache.bound_to(app="other").app_scope().get("a") is None
    assert await cache.bound_to(org="other").user_scope("ada").get("a") is None


async def test_a_wrong_key_of_a_scope_is_refused(small_cache: SessionCache) -> None:
    with pytest.raises(InvalidNameError):
        await small_cache.user_scope("ada").set("x" * 257, 1)


async def test_empty_scopes_do_not_go_to_sql_each_time(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    await drain(urls)
    evict(urls.redis)
    statements: list[str] = []
    async with connect(urls) as other:
        engine = other._tiers.durable.engine.sync_engine
        event.listen(engine, "before_cursor_execute", lambda _c, _cur, text, *_: statements.append(text))
        for _ in range(5):
            await other.get("ada", "s1")
            await other.user_scope("nobody").get("x")
            seen = len(statements)
        statements.clear()
        for _ in range(5):
            await other.get("ada", "s1")
            await other.user_scope("nobody").get("x")
            await other.app_scope().refresh()
    assert seen > 0
    assert statements == []
    assert made.id == "s1"
