"""Sessions: create, get, get_or_create, delete, and what a session says of itself."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from sessioncache.errors import SessionExistsError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, OpenCache, raised


class TestSessions(Conformance):
    """The life of a session."""

    async def test_a_created_session_holds_its_initial_state(self, cache: Cache) -> None:
        state = {"step": 1, "user:language": "en", "app:motd": None, "temp:call": [1]}
        made = await cache.create("ada", session_id="s1", state=state, title="A trip")
        assert dict(made.state) == state
        assert (made.id, made.user, made.app, made.org) == ("s1", "ada", cache.app, cache.org)
        assert (made.title, made.message_count, made.token_total, made.forked_from) == ("A trip", 0, 0, None)
        assert made.updated_at == made.created_at

    async def test_a_created_session_has_what_its_user_and_app_have_already(self, cache: Cache) -> None:
        await cache.user_scope("ada").update({"language": "en", "old": 1})
        await cache.app_scope().set("motd", "hello")
        shared = {"user:language": "en", "user:old": 1, "app:motd": "hello"}
        bare = await cache.create("ada", session_id="bare")
        assert dict(bare.state) == shared == dict((await cache.get("ada", "bare")).state)
        state = {"step": 1, "user:old": 2, "user:new": 3, "temp:t": 4}
        made, created = await cache.get_or_create("ada", "s1", state=state)
        assert created
        assert dict(made.state) == shared | state == dict((await cache.get("ada", "s1")).state)
        fork = await made.fork()
        assert dict(fork.state) == {key: value for key, value in made.state.items() if key != "temp:t"}

    async def test_sessions_created_in_a_batch_have_what_their_user_and_app_have_already(self, cache: Cache) -> None:
        await cache.user_scope("ada").set("u", 1)
        await cache.app_scope().set("p", 2)
        async with cache.batch() as batch:
            made = [batch.create("ada", state={"n": n}) for n in range(3)]
            other = batch.get_or_create("bob", "s1", state={"n": 3})
        assert [dict(one.result().state) for one in made] == [{"n": n, "user:u": 1, "app:p": 2} for n in range(3)]
        assert dict(other.result()[0].state) == {"n": 3, "app:p": 2}

    async def test_another_cache_object_sees_what_was_created(self, cache: Cache, open_cache: OpenCache) -> None:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 2}, title="A trip")
        async with open_cache(app=cache.app, org=cache.org) as other:
            found = await other.get("ada", "s1")
            assert dict(found.state) == {"a": 1, "user:u": 2}
            assert found.title == "A trip"
            assert (found.revision, found.created_at) == (made.revision, made.created_at)

    async def test_generated_ids_are_new_each_time(self, cache: Cache) -> None:
        ids = {(await cache.create("ada")).id for _ in range(5)}
        assert len(ids) == 5
        assert all(re.fullmatch("sess_[0-9a-f]{24}", one) for one in ids)

    async def test_times_are_aware_and_in_utc(self, cache: Cache) -> None:
        made = await cache.create("ada")
        assert made.created_at.utcoffset() == timedelta(0)
        assert made.updated_at.utcoffset() == timedelta(0)

    async def test_a_taken_id_is_refused_and_nothing_is_changed(self, cache: Cache) -> None:
        before = {"a": 1, "user:u": 1, "app:p": 1, "temp:t": 1}
        await cache.create("ada", session_id="s1", state=before, title="old")
        again = {"a": 2, "b": 2, "user:u": 2, "app:p": 2, "temp:t": 2}
        error = await raised(SessionExistsError, cache.create("ada", session_id="s1", state=again, title="new"))
        assert error.session_id == "s1"
        found = await cache.get("ada", "s1")
        assert dict(found.state) == before
        assert found.title == "old"

    async def test_users_may_use_the_same_session_id(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"who": "ada"})
        await cache.create("bob", session_id="s1", state={"who": "bob"})
        assert (await cache.get("ada", "s1")).state["who"] == "ada"
        assert (await cache.get("bob", "s1")).state["who"] == "bob"

    async def test_the_empty_user_is_an_ordinary_user(self, cache: Cache) -> None:
        await cache.create("", session_id="s1", state={"user:u": 1})
        assert dict((await cache.get("", "s1")).state) == {"user:u": 1}
        await raised(SessionNotFoundError, cache.get("ada", "s1"))

    async def test_a_missing_session_is_not_found(self, cache: Cache) -> None:
        error = await raised(SessionNotFoundError, cache.get("ada", "none"))
        assert error.session_id == "none"

    async def test_another_users_session_is_as_missing_as_none(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")
        foreign = await raised(SessionNotFoundError, cache.get("bob", "s1"))
        await cache.delete("ada", "s1")
        none = await raised(SessionNotFoundError, cache.get("bob", "s1"))
        assert str(foreign) == str(none)
        assert foreign.session_id == none.session_id

    async def test_get_or_create_creates_once_and_resets_nothing(self, cache: Cache) -> None:
        first, created = await cache.get_or_create("ada", "s1", state={"a": 1}, title="first")
        assert created is True
        await first.set("b", 2)
        second, created = await cache.get_or_create("ada", "s1", state={"a": 9, "c": 9, "user:u": 9}, title="second")
        assert created is False
        assert dict(second.state) == {"a": 1, "b": 2}
        assert second.title == "first"

    async def test_delete_tells_whether_the_session_existed(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")
        assert await cache.delete("bob", "s1") is False
        assert await cache.delete("ada", "s1") is True
        assert await cache.delete("ada", "s1") is False

    async def test_delete_takes_private_keys_and_leaves_shared_ones(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
        await cache.delete("ada", "s1")
        await raised(SessionNotFoundError, cache.get("ada", "s1"))
        assert await cache.user_scope("ada").get("u") == 1
        assert await cache.app_scope().get("p") == 1

    async def test_reading_the_unknown_creates_nothing(self, cache: Cache) -> None:
        await raised(SessionNotFoundError, cache.get("ada", "s1"))
        assert await cache.delete("ada", "s1") is False
        assert await cache.user_scope("ada").get("x") is None
        assert (await cache.list()).items == []
        await cache.create("ada", session_id="s1")

    async def test_the_sessions_of_other_tenants_and_apps_are_out_of_reach(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1})
        others = [cache.bound_to(org=cache.org + "2"), cache.bound_to(app="other"), cache.bound_to(app="")]
        for other in others:
            await raised(SessionNotFoundError, other.get("ada", "s1"))
            assert await other.delete("ada", "s1") is False
            mine = await other.create("ada", session_id="s1")
            assert dict(mine.state) == {}
            await mine.update({"a": 2, "user:u": 2, "app:p": 2})
        assert dict((await cache.get("ada", "s1")).state) == {"a": 1, "user:u": 1, "app:p": 1}

    async def test_a_bound_cache_names_its_tenant(self, cache: Cache) -> None:
        other = cache.bound_to(app="other")
        assert (other.org, other.app) == (cache.org, "other")
        made = await other.create("ada")
        assert (made.org, made.app) == (cache.org, "other")

    async def test_closing_a_bound_cache_leaves_the_connections_open(self, cache: Cache) -> None:
        async with cache.bound_to(app="other") as other:
            await other.create("ada")
        await cache.create("ada")

    async def test_all_that_was_written_can_be_flushed(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
        await made.update({"a": 2}, delete=["user:u"])
        await cache.user_scope("bob").set("x", 1)
        await made.flush()
        await cache.flush()
        await cache.delete("ada", made.id)
        await cache.flush()

    async def test_a_flushed_session_is_what_it_was(self, cache: Cache, open_cache: OpenCache) -> None:
        state: dict[str, Any] = {"a": [1.0, {"b": None}], "user:u": 2**70, "app:p": "x"}
        made = await cache.create("ada", session_id="s1", state=state, title="A trip")
        await made.set("step", 1)
        await made.flush()
        async with open_cache(app=cache.app, org=cache.org) as other:
            found = await other.get("ada", "s1")
            assert dict(found.state) == state | {"step": 1}
            assert (found.title, found.revision, found.updated_at) == ("A trip", made.revision, made.updated_at)
