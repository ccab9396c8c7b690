"""Forks: a new session of the same user, with the private keys of its parent."""

from __future__ import annotations

import asyncio

from sessioncache.errors import InvalidNameError, SessionExistsError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, raised


class TestForks(Conformance):
    """cache.fork and s.fork."""

    async def test_a_fork_has_the_private_keys_and_namespaces_of_its_parent(self, cache: Cache) -> None:
        state = {"a": [1.0, {"b": None}], "big": 2**70, "user:u": 1, "app:p": 1, "temp:t": 1}
        parent = await cache.create("ada", session_id="s1", state=state, title="A trip")
        await parent.namespace("n").update({"x": 1, "y": [2]})
        child = await cache.fork("ada", "s1", new_id="s2")
        assert (child.id, child.user, child.forked_from, child.title) == ("s2", "ada", "s1", "A trip")
        await child.refresh()
        assert dict(child.state) == {"a": [1.0, {"b": None}], "big": 2**70, "user:u": 1, "app:p": 1}
        assert await child.namespace("n").items() == [("x", 1), ("y", [2])]

    async def test_a_fork_is_found_like_any_session(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1})
        child = await cache.fork("ada", "s1", new_id="s2")
        found = await cache.get("ada", "s2")
        assert dict(found.state) == {"a": 1}
        assert (found.forked_from, found.created_at) == ("s1", child.created_at)
        assert {one.id: one.forked_from for one in (await cache.list("ada")).items} == {"s1": None, "s2": "s1"}

    async def test_the_new_id_is_generated_where_none_is_given(self, cache: Cache) -> None:
        parent = await cache.create("ada", state={"a": 1})
        children = [await cache.fork("ada", parent.id), await parent.fork()]
        assert len({parent.id, *(child.id for child in children)}) == 3
        assert all(child.id.startswith("sess_") for child in children)

    async def test_a_handle_forks_its_own_life(self, cache: Cache) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": "old"})
        child = await old.fork(new_id="s2")
        assert await child.get("a") == "old"
        await cache.delete("ada", "s1")
        await raised(SessionNotFoundError, old.fork())
        await cache.create("ada", session_id="s1", state={"a": "new"})
        await raised(SessionNotFoundError, old.fork(new_id="s3"))
        await raised(SessionNotFoundError, cache.get("ada", "s3"))

    async def test_counters_begin_at_zero(self, cache: Cache) -> None:
        parent = await cache.create("ada")
        await parent.touch(messages=3, tokens=70)
        child = await parent.fork()
        assert (child.message_count, child.token_total) == (0, 0)
        assert (await cache.get("ada", parent.id)).message_count == 3

    async def test_parent_and_fork_are_independent(self, cache: Cache) -> None:
        parent = await cache.create("ada", session_id="s1", state={"a": 1, "b": 1})
        await parent.namespace("n").set("x", 1)
        child = await parent.fork(new_id="s2")
        await parent.update({"a": 2}, delete=["b"])
        await parent.namespace("n").set("x", 2)
        await child.update({"c": 3})
        await child.namespace("n").set("y", 3)
        assert dict((await cache.get("ada", "s1")).state) == {"a": 2}
        assert dict((await cache.get("ada", "s2")).state) == {"a": 1, "b": 1, "c": 3}
        assert await parent.namespace("n").items() == [("x", 2)]
        assert await child.namespace("n").items() == [("x", 1), ("y", 3)]

    async def test_a_fork_outlives_its_parent(self, cache: Cache) -> None:
        parent = await cache.create("ada", session_id="s1", state={"a": 1})
        await parent.namespace("n").set("x", 1)
        await cache.flush()
        child = await parent.fork(new_id="s2")
        await cache.delete("ada", "s1")
        await cache.flush()
        assert dict((await cache.get("ada", "s2")).state) == {"a": 1}
        assert await child.namespace("n").items() == [("x", 1)]

    async def test_a_fork_becomes_durable(self, cache: Cache) -> None:
        parent = await cache.create("ada", state={"a": 1})
        await parent.namespace("n").set("x", 1)
        child = await parent.fork()
        await child.flush()
        found = await cache.get("ada", child.id)
        assert dict(found.state) == {"a": 1}
        assert await found.namespace("n").items() == [("x", 1)]

    async def test_a_fork_of_a_fork_names_its_own_parent(self, cache: Cache) -> None:
        first = await cache.create("ada", session_id="s1", state={"a": 1})
        third = await (await first.fork(new_id="s2")).fork(new_id="s3")
        assert third.forked_from == "s2"
        assert await third.get("a") == 1

    async def test_what_was_deleted_is_not_forked(self, cache: Cache) -> None:
        parent = await cache.create("ada", state={"a": 1, "gone": 1})
        await parent.delete("gone")
        child = await parent.fork()
        await child.refresh()
        assert dict(child.state) == {"a": 1}

    async def test_a_taken_id_is_refused_and_nothing_is_changed(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.create("ada", session_id="s2", state={"b": 2})
        for taken in ("s1", "s2"):
            error = await raised(SessionExistsError, cache.fork("ada", "s1", new_id=taken))
            assert error.session_id == taken
        assert dict((await cache.get("ada", "s1")).state) == {"a": 1}
        assert dict((await cache.get("ada", "s2")).state) == {"b": 2}

    async def test_a_missing_parent_is_not_found(self, cache: Cache) -> None:
        await cache.create("bob", session_id="s1")
        await raised(SessionNotFoundError, cache.fork("ada", "s1", new_id="s2"))
        await raised(SessionNotFoundError, cache.get("ada", "s2"))
        await raised(InvalidNameError, cache.fork("bob", "s1", new_id=""))

    async def test_forking_moves_nothing_of_the_parent(self, cache: Cache) -> None:
        parent = await cache.create("ada", state={"a": 1})
        await parent.fork()
        found = await cache.get("ada", parent.id)
        assert (found.revision, found.updated_at) == (parent.revision, parent.updated_at)

    async def test_forks_at_once_are_all_whole(self, cache: Cache) -> None:
        parent = await cache.create("ada", state={f"k{n}": n for n in range(20)})
        await parent.namespace("n").update({f"k{n}": n for n in range(20)})
        children = await asyncio.gather(*(parent.fork() for _ in range(20)))
        assert len({child.id for child in children}) == 20
        for child in children:
            assert dict((await cache.get("ada", child.id)).state) == {f"k{n}": n for n in range(20)}
            assert len(await child.namespace("n").items()) == 20
