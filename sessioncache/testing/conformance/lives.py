"""Lives: a handle belongs to one life of its session, and reaches nothing of the next one."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache.errors import SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, OpenCache, raised

_CALLS: dict[str, Any] = {
    "get": lambda s: s.get("a"),
    "get user:": lambda s: s.get("user:u"),
    "get app:": lambda s: s.get("app:p"),
    "get temp:": lambda s: s.get("temp:t"),
    "set": lambda s: s.set("a", "intruder"),
    "set user:": lambda s: s.set("user:u", "intruder"),
    "set app:": lambda s: s.set("app:p", "intruder"),
    "set temp:": lambda s: s.set("temp:t", "intruder"),
    "update": lambda s: s.update({"x": "intruder", "user:x": "intruder"}, delete=["a"]),
    "delete": lambda s: s.delete("a"),
    "increment": lambda s: s.increment("n"),
    "append": lambda s: s.append("l", "intruder"),
    "refresh": lambda s: s.refresh(),
}


async def _edit(session: Any) -> None:
    async with session.edit() as draft:
        draft["a"] = "intruder"


_CALLS["edit"] = _edit


class TestLives(Conformance):
    """After delete, and after a new session took the id."""

    @pytest.mark.parametrize("call", _CALLS)
    async def test_an_old_handle_fails_once_its_session_was_deleted(
        self, cache: Cache, open_cache: OpenCache, call: str
    ) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": 1, "n": 1, "l": [], "temp:t": 1})
        async with open_cache(app=cache.app, org=cache.org) as other:
            await other.delete("ada", "s1")
        assert (await raised(SessionNotFoundError, _CALLS[call](old))).session_id == "s1"
        assert await cache.user_scope("ada").get("u") is None
        assert await cache.app_scope().get("p") is None

    @pytest.mark.parametrize("call", _CALLS)
    async def test_an_old_handle_reaches_nothing_of_the_next_life(self, cache: Cache, call: str) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": "old", "temp:t": "old"})
        await cache.delete("ada", "s1")
        state = {"a": "new", "n": 1, "l": [], "user:u": 1, "app:p": 1, "temp:t": "new"}
        await cache.create("ada", session_id="s1", state=state)
        await raised(SessionNotFoundError, _CALLS[call](old))
        assert dict((await cache.get("ada", "s1")).state) == state

    async def test_a_new_life_begins_empty(self, cache: Cache) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": 1, "temp:t": 1, "user:u": 1}, title="old")
        await old.flush()
        await cache.delete("ada", "s1")
        new = await cache.create("ada", session_id="s1", state={"b": 2})
        await new.refresh()
        assert dict(new.state) == {"b": 2, "user:u": 1}
        assert new.title == ""
        assert new.created_at > old.created_at
        assert new.revision > old.revision

    async def test_a_new_life_stays_empty_after_a_flush(self, cache: Cache, open_cache: OpenCache) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": 1, "b": 1})
        await old.flush()
        await cache.delete("ada", "s1")
        new = await cache.create("ada", session_id="s1", state={"b": 2})
        await cache.flush()
        async with open_cache(app=cache.app, org=cache.org) as other:
            found = await other.get("ada", "s1")
            assert dict(found.state) == {"b": 2}
            assert found.created_at == new.created_at

    async def test_delete_and_create_may_alternate(self, cache: Cache) -> None:
        revisions = []
        for number in range(10):
            made = await cache.create("ada", session_id="s1", state={"n": number})
            revisions.append(made.revision)
            assert dict((await cache.get("ada", "s1")).state) == {"n": number}
            assert await cache.delete("ada", "s1") is True
        assert revisions == sorted(set(revisions))
        await raised(SessionNotFoundError, cache.get("ada", "s1"))
