"""Namespaces: named sets of keys of a session, each a scope of its own."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from sessioncache.errors import InvalidNameError, InvalidValueError, SessionNotFoundError, StaleSessionError
from sessioncache.testing.conformance.base import Cache, Conformance, exact, raised
from sessioncache.testing.conformance.values import VALUES


class TestNamespaces(Conformance):
    """s.namespace(name)."""

    async def test_a_namespace_is_apart_from_the_sessions_plain_keys(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": "plain"})
        skills, tools = made.namespace("skills"), made.namespace("tools")
        await skills.set("a", "skill")
        await tools.set("a", "tool")
        assert (await made.get("a"), await skills.get("a"), await tools.get("a")) == ("plain", "skill", "tool")
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {"a": "plain"}
        assert await found.namespace("skills").get("a") == "skill"

    async def test_prefixes_mean_nothing_in_it(self, cache: Cache) -> None:
        made = await cache.create("ada")
        space = made.namespace("n")
        await space.update({"user:u": 1, "app:p": 2, "temp:t": 3})
        await made.refresh()
        assert dict(made.state) == {}
        assert await space.items() == [("app:p", 2), ("temp:t", 3), ("user:u", 1)]
        assert await cache.user_scope("ada").get("u") is None

    async def test_it_has_the_calls_of_a_session(self, cache: Cache) -> None:
        space = (await cache.create("ada")).namespace("n")
        assert await space.get("a", "default") == "default"
        revision = await space.update({"a": 1, "b": 2, "c": 3}, delete=["absent"])
        assert space.revision == revision
        assert await space.delete("a") is True
        assert await space.delete("a") is False
        assert await space.increment("b", 40) == 42
        assert await space.append("l", 1, 2) == 2
        async with space.edit() as draft:
            draft["l"].append(3)
            del draft["c"]
        assert dict(space.state) == {"b": 42, "l": [1, 2, 3]}
        await space.refresh()
        assert dict(space.state) == {"b": 42, "l": [1, 2, 3]}
        await space.flush()

    async def test_items_are_sorted_by_key_and_fresh(self, cache: Cache) -> None:
        made = await cache.create("ada")
        space = made.namespace("n")
        assert await space.items() == []
        await made.namespace("n").update({"b": 1, "a": [2], "B": None, "é": 3})
        assert await space.items() == [("B", None), ("a", [2]), ("b", 1), ("é", 3)]

    async def test_values_come_back_exactly(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        await made.namespace("n").update(VALUES)
        await cache.flush()
        found = (await cache.get("ada", "s1")).namespace("n")
        assert {key: exact(value) for key, value in await found.items()} == {
            key: exact(value) for key, value in VALUES.items()
        }

    async def test_what_is_refused_applies_nothing(self, cache: Cache) -> None:
        space = (await cache.create("ada")).namespace("n")
        await raised(InvalidValueError, space.update({"a": 1, "b": math.nan}))
        await raised(InvalidNameError, space.update({"a": 1, "": 2}))
        assert await space.items() == []

    async def test_its_revision_is_its_own(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        before = made.revision
        space = made.namespace("n")
        first = await space.set("a", 1)
        await made.namespace("other").set("a", 1)
        assert (await cache.get("ada", made.id)).revision == before
        await made.set("a", 2)
        await space.update({"a": 2}, if_revision=first)
        await raised(StaleSessionError, space.update({"a": 3}, if_revision=first))
        assert await space.get("a") == 2

    async def test_a_write_moves_the_sessions_updated_at(self, cache: Cache) -> None:
        made = await cache.create("ada")
        await made.namespace("n").set("a", 1)
        found = await cache.get("ada", made.id)
        assert found.updated_at > made.created_at
        (listed,) = (await cache.list("ada")).items
        assert listed.updated_at == found.updated_at

    async def test_an_edit_conflicts_on_the_keys_it_changed(self, cache: Cache) -> None:
        made = await cache.create("ada")
        space = made.namespace("n")
        await space.update({"a": 1, "b": 1})

        async def conflict() -> None:
            async with space.edit() as draft:
                await made.namespace("n").set("a", 2)
                draft.update({"a": 3, "b": 3})

        assert (await raised(StaleSessionError, conflict())).keys == ("a",)
        assert await space.items() == [("a", 2), ("b", 1)]

    async def test_clear_empties_this_namespace_only(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        space, other = made.namespace("n"), made.namespace("other")
        await space.update({"a": 1, "b": 2})
        await other.set("a", 1)
        assert await space.clear() == 2
        assert await space.clear() == 0
        assert await space.items() == []
        assert dict(space.state) == {}
        assert await other.items() == [("a", 1)]
        assert await made.get("a") == 1
        await space.flush()
        assert await made.namespace("n").items() == []
        await space.set("c", 3)
        assert await space.items() == [("c", 3)]

    async def test_namespaces_go_with_their_session(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        space = made.namespace("n")
        await space.set("a", 1)
        await cache.delete("ada", "s1")
        for call in (space.get("a"), space.set("a", 2), space.items(), space.refresh(), space.clear()):
            await raised(SessionNotFoundError, call)

    async def test_a_new_life_begins_with_empty_namespaces(self, cache: Cache) -> None:
        old = await cache.create("ada", session_id="s1")
        space = old.namespace("n")
        await space.update({"a": 1, "b": 1})
        await cache.flush()
        await cache.delete("ada", "s1")
        new = await cache.create("ada", session_id="s1")
        await new.namespace("n").set("b", 2)
        for call in (space.get("a"), space.set("a", 2), space.increment("b"), space.items()):
            await raised(SessionNotFoundError, call)
        assert await new.namespace("n").items() == [("b", 2)]
        await cache.flush()
        assert await (await cache.get("ada", "s1")).namespace("n").items() == [("b", 2)]

    @pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "\ud800", 1, None], ids=ascii)
    async def test_a_wrong_name_is_refused(self, cache: Cache, name: Any) -> None:
        made = await cache.create("ada")
        with pytest.raises(InvalidNameError):
            made.namespace(name)
        for key in (name, "x" * 257):
            await raised(InvalidNameError, made.namespace("n").set(key, 1))

    async def test_names_are_kept_verbatim(self, cache: Cache) -> None:
        made = await cache.create("ada")
        names = ["a", "A", "a ", "user:", "temp:", "é", "e\u0301", "a:b", "x" * 256]
        for name in names:
            await made.namespace(name).set("k", name)
        for name in names:
            assert await made.namespace(name).items() == [("k", name)]

    async def test_every_increment_counts(self, cache: Cache) -> None:
        made = await cache.create("ada")
        await asyncio.gather(*(made.namespace("n").increment("k") for _ in range(50)))
        assert await made.namespace("n").get("k") == 50
