"""Where keys live: prefixes, `temp:`, and shared scopes without a session."""

from __future__ import annotations

from sessioncache.errors import StaleSessionError
from sessioncache.testing.conformance.base import Cache, Conformance, raised


class TestPrefixes(Conformance):
    """Only the first prefix counts, and only in exactly this case."""

    async def test_keys_live_where_their_first_prefix_says(self, cache: Cache) -> None:
        keys = ["plain", "user:u", "user:", "app:p", "app:temp:x", "user:app:x", "temp:t", "temp:", "temp:user:x"]
        own = ["foo:x", "APP:x", "User:x", "temp", ":", " user:x", "x:user:y"]
        made = await cache.create("ada", state={key: key for key in keys})
        await made.update({key: key for key in own})
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {key: key for key in keys + own}
        users, apps = cache.user_scope("ada"), cache.app_scope()
        await users.refresh()
        await apps.refresh()
        assert dict(users.state) == {"u": "user:u", "": "user:", "app:x": "user:app:x"}
        assert dict(apps.state) == {"p": "app:p", "temp:x": "app:temp:x"}

    async def test_shared_keys_are_seen_by_whom_they_are_shared_with(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"own": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
        same_user, other_user = await cache.create("ada"), await cache.create("bob")
        await same_user.refresh()
        await other_user.refresh()
        assert dict(same_user.state) == {"user:u": 1, "app:p": 1}
        assert dict(other_user.state) == {"app:p": 1}
        await other_user.set("app:p", 2)
        assert await made.get("app:p") == 2

    async def test_a_new_session_has_what_its_user_has_already(self, cache: Cache) -> None:
        await cache.user_scope("ada").update({"u": 1, "v": 1})
        made = await cache.create("ada", state={"a": 1, "user:u": 2})
        assert dict(made.state) == {"a": 1, "user:u": 2, "user:v": 1}


class TestTemp(Conformance):
    """Keys that live beside one session and are never stored."""

    async def test_temp_keys_belong_to_their_session(self, cache: Cache) -> None:
        first, second = await cache.create("ada", state={"temp:t": 1}), await cache.create("ada")
        assert await second.get("temp:t") is None
        await second.set("temp:t", 2)
        assert await (await cache.get("ada", first.id)).get("temp:t") == 1
        assert dict((await cache.get("ada", second.id)).state) == {"temp:t": 2}

    async def test_temp_keys_die_with_their_session(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1", state={"temp:t": 1})
        await cache.delete("ada", "s1")
        again = await cache.create("ada", session_id="s1", state={"temp:other": 1})
        await again.refresh()
        assert dict(again.state) == {"temp:other": 1}

    async def test_temp_keys_need_no_flush(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"temp:t": 1})
        await made.flush()
        await made.set("temp:t", 2)
        await made.flush()
        assert await made.get("temp:t") == 2


class TestSharedScopes(Conformance):
    """user_scope and app_scope."""

    async def test_a_scope_is_what_sessions_see_under_its_prefix(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"user:u": 1, "app:p": 1})
        mine, everyones = cache.user_scope("ada"), cache.app_scope()
        assert (await mine.get("u"), await everyones.get("p")) == (1, 1)
        await mine.update({"v": 2}, delete=["u"])
        assert await everyones.increment("p", 4) == 5
        assert await everyones.append("l", 1, 2) == 2
        await made.refresh()
        assert dict(made.state) == {"user:v": 2, "app:p": 5, "app:l": [1, 2]}

    async def test_keys_of_a_scope_bear_no_prefix(self, cache: Cache) -> None:
        await cache.user_scope("ada").set("app:x", 1)
        await cache.app_scope().update({"user:x": 2, "temp:x": 3, "": 4})
        made = await cache.create("ada")
        await made.refresh()
        assert dict(made.state) == {"user:app:x": 1, "app:user:x": 2, "app:temp:x": 3, "app:": 4}

    async def test_a_scope_needs_no_session(self, cache: Cache) -> None:
        scope = cache.user_scope("nobody")
        assert await scope.get("x") is None
        assert await scope.delete("x") is False
        await scope.refresh()
        assert dict(scope.state) == {}
        assert scope.revision == 0
        assert await scope.set("x", 1) == scope.revision > 0
        await scope.flush()

    async def test_a_scope_has_a_revision_of_its_own(self, cache: Cache) -> None:
        scope = cache.user_scope("ada")
        first = await scope.set("a", 1)
        await cache.user_scope("ada").set("b", 1)
        await raised(StaleSessionError, scope.update({"a": 2}, if_revision=first))
        await scope.refresh()
        assert await scope.update({"a": 2}, if_revision=scope.revision) == scope.revision
        assert await cache.user_scope("ada").get("a") == 2

    async def test_the_revision_of_a_scope_stands_for_what_its_state_shows(self, cache: Cache) -> None:
        await cache.app_scope().set("a", "of another")
        for scope in (cache.app_scope(), await _read(cache.app_scope())):
            await cache.app_scope().set("a", "of another, later")
            await scope.set("b", 1)
            await raised(StaleSessionError, scope.update({"a": "unseen"}, if_revision=scope.revision))

    async def test_an_edit_of_a_scope_is_refused_where_a_key_changed(self, cache: Cache) -> None:
        scope = cache.app_scope()
        await scope.update({"a": 1, "b": {"n": 1}})

        async def conflict() -> None:
            async with scope.edit() as draft:
                await cache.app_scope().set("a", 2)
                draft["a"] = 3

        assert (await raised(StaleSessionError, conflict())).keys == ("a",)
        async with scope.edit() as draft:
            draft["b"]["n"] += 1
        assert dict((await _read(cache.app_scope())).state) == {"a": 2, "b": {"n": 2}}

    async def test_users_apps_and_tenants_are_apart(self, cache: Cache) -> None:
        await cache.user_scope("ada").set("a", 1)
        await cache.app_scope().set("a", 2)
        assert await cache.user_scope("bob").get("a") is None
        assert await cache.user_scope("").get("a") is None
        assert await cache.bound_to(app="other").app_scope().get("a") is None
        assert await cache.bound_to(app="other").user_scope("ada").get("a") is None
        assert await cache.bound_to(org=cache.org + "2").user_scope("ada").get("a") is None


async def _read(scope: Cache) -> Cache:
    await scope.refresh()
    return scope
