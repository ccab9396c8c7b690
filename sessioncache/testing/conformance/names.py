"""Names are kept verbatim or refused at the call, never trimmed or folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sessioncache.errors import InvalidNameError, LimitExceededError
from sessioncache.testing.conformance.base import Cache, Conformance, OpenCache, raised

GOOD_NAMES = ["a", "A", "a ", " a", "{a}", "a:b", "a/b", "é", "e\u0301", "😀", "\n", "%00", "*", "x" * 256, "é" * 128]
BAD_NAMES = ["x" * 257, "é" * 129, "a\0b", "\ud800", 1, None, b"a"]


class TestNames(Conformance):
    """Org, app, user, session id and key."""

    async def test_names_of_any_characters_stay_apart(self, cache: Cache) -> None:
        for name in GOOD_NAMES:
            await cache.create(name, session_id=name, state={name: name, "user:" + name: name}, title=name)
        for name in GOOD_NAMES:
            found = await cache.get(name, name)
            assert dict(found.state) == {name: name, "user:" + name: name}
            assert (found.user, found.id, found.title) == (name, name, name)
        assert sorted(one.id for one in (await cache.list()).items) == sorted(GOOD_NAMES)

    @pytest.mark.parametrize("name", ["", *GOOD_NAMES], ids=ascii)
    async def test_org_and_app_are_kept_verbatim(self, cache: Cache, name: str) -> None:
        other = cache.bound_to(app=name)
        made = await other.create("ada", session_id="s1", state={"app:p": 1})
        assert made.app == other.app == name
        assert cache.bound_to(org=name).org == name
        for near in {"a", "A", "a ", "e\u0301", "é"} - {name}:
            assert await cache.bound_to(app=near).app_scope().get("p") is None

    @pytest.mark.parametrize("key", ["", "user:" + "x" * 257, *BAD_NAMES], ids=ascii)
    async def test_a_wrong_key_is_refused_by_every_call(self, cache: Cache, key: Any) -> None:
        made = await cache.create("ada")
        calls: list[Callable[[], Any]] = [
            lambda: made.get(key),
            lambda: made.set(key, 1),
            lambda: made.update({"ok": 1, key: 1}),
            lambda: made.update({"ok": 1}, delete=[key]),
            lambda: made.delete(key),
            lambda: made.increment(key),
            lambda: made.append(key, 1),
            lambda: cache.create("ada", session_id="s2", state={"ok": 1, key: 1}),
        ]
        for call in calls:
            await raised(InvalidNameError, call())
        await made.refresh()
        assert dict(made.state) == {}
        assert len((await cache.list()).items) == 1

    async def test_a_key_may_be_as_long_as_any_name_beside_its_prefix(self, cache: Cache) -> None:
        made = await cache.create("ada")
        for prefix in ("", "user:", "app:", "temp:"):
            await made.set(prefix + "x" * 256, 1)
            await raised(InvalidNameError, made.set(prefix + "x" * 257, 1))

    @pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
    async def test_a_wrong_user_is_refused(self, cache: Cache, name: Any) -> None:
        for call in (cache.get, cache.delete, cache.get_or_create):
            await raised(InvalidNameError, call(name, "s"))
        await raised(InvalidNameError, cache.create(name))
        with pytest.raises(InvalidNameError):
            cache.user_scope(name)
        if name is not None:
            await raised(InvalidNameError, cache.list(name))

    @pytest.mark.parametrize("name", ["", *BAD_NAMES], ids=ascii)
    async def test_a_wrong_session_id_is_refused(self, cache: Cache, name: Any) -> None:
        for call in (cache.get, cache.delete, cache.get_or_create):
            await raised(InvalidNameError, call("ada", name))
        if name is not None:
            await raised(InvalidNameError, cache.create("ada", session_id=name))
        assert (await cache.list()).items == []

    @pytest.mark.parametrize("name", ["x" * 257, "a\0b", "\ud800", 1], ids=ascii)
    async def test_a_wrong_org_or_app_is_refused(self, cache: Cache, open_cache: OpenCache, name: Any) -> None:
        for wrong in ({"org": name}, {"app": name}):
            with pytest.raises(InvalidNameError):
                cache.bound_to(**wrong)
            await raised(InvalidNameError, _open(open_cache, **({"org": "o", "app": "a"} | wrong)))

    @pytest.mark.parametrize("title", [1, b"x", "a\0b", "\ud800"], ids=ascii)
    async def test_a_wrong_title_is_refused(self, cache: Cache, title: Any) -> None:
        await raised(InvalidNameError, cache.create("ada", title=title))
        assert (await cache.list()).items == []


class TestLimits(Conformance):
    """How much one scope may hold."""

    async def test_a_scope_has_at_most_20000_keys(self, cache: Cache) -> None:
        made = await cache.create("ada")
        for start in range(0, 20_000, 2_000):
            await made.update({f"k{number}": number for number in range(start, start + 2_000)})
        await raised(LimitExceededError, made.update({"k0": "changed", "one more": 1}))
        await made.set("k0", "changed")
        await made.update({"one more": 1}, delete=["k1"])
        await made.set("user:u", 1)
        found = await cache.get("ada", made.id)
        assert len(found.state) == 20_001
        assert (found.state["k0"], found.state["one more"], "k1" in found.state) == ("changed", 1, False)

    async def test_one_call_changes_at_most_2000_keys(self, cache: Cache) -> None:
        """In all its scopes together, those that it deletes counted as well; nothing of a larger one is written."""
        made = await cache.create("ada", state={"k": 1})
        most = {f"k{number}": number for number in range(1_999)}
        await raised(LimitExceededError, made.update(most | {"user:a": 1, "app:b": 1}))
        await raised(LimitExceededError, made.update(most, delete=["k", "temp:a"]))
        await raised(LimitExceededError, cache.user_scope("ada").update(most | {"a": 1, "b": 1}))
        await raised(LimitExceededError, made.namespace("n").update(most | {"a": 1, "b": 1}))
        assert dict((await cache.get("ada", made.id)).state) == {"k": 1}
        await made.update(most, delete=["k"])
        assert dict((await cache.get("ada", made.id)).state) == most

    async def test_one_call_writes_at_most_2_mib(self, cache: Cache) -> None:
        made = await cache.create("ada")
        half, more = "x" * (1024 * 1024 - 2), "x" * (1024 * 1024 - 12)
        await raised(LimitExceededError, made.update({"a": half, "user:b": more, "temp:c": "x" * 9}))
        assert dict((await cache.get("ada", made.id)).state) == {}
        await made.update({"a": half, "user:b": more, "temp:c": "x" * 8})
        assert len((await cache.get("ada", made.id)).state) == 3

    async def test_a_call_of_a_batch_is_refused_where_it_is_noted(self, cache: Cache) -> None:
        made = await cache.create("ada")
        async with cache.batch() as batch:
            with pytest.raises(LimitExceededError):
                batch.on(made).update({f"k{number}": number for number in range(2_001)})
            with pytest.raises(LimitExceededError):
                batch.on(made).update({f"k{number}": "x" * 600_000 for number in range(4)})

    async def test_one_call_replaces_at_most_4_mib(self, cache: Cache) -> None:
        """Of more than four keys, which are as large as they may be at most."""
        made = await cache.create("ada")
        for number in range(5):
            await made.set(f"k{number}", "x" * 1_000_000)
        await raised(LimitExceededError, made.update(dict.fromkeys(made.state, 1)))
        await raised(LimitExceededError, made.update({}, delete=list(made.state)))
        assert {len(value) for value in (await cache.get("ada", made.id)).state.values()} == {1_000_000}
        await made.update({}, delete=["k0", "k1", "k2", "k3"])
        await made.update({f"k{number}": number for number in range(6)})
        assert dict(made.state) == {f"k{number}": number for number in range(6)}

    async def test_a_session_may_begin_with_more_than_one_call_writes(self, cache: Cache) -> None:
        """And be forked, whatever it has; what is shared has the limits of a call."""
        state = {f"k{number}": number for number in range(2_001)}
        await raised(LimitExceededError, cache.create("ada", state={f"user:{key}": 1 for key in state}))
        made = await cache.create("ada", session_id="s1", state=state | {"user:u": 1, "temp:t": 2})
        assert dict(made.state) == state | {"user:u": 1, "temp:t": 2}
        await made.namespace("n").set("a", 3)
        assert await made.update({"k0": "new"}, if_revision=made.revision) == made.revision
        child = await made.fork()
        assert dict(child.state) == state | {"k0": "new", "user:u": 1}
        assert await child.namespace("n").items() == [("a", 3)]
        assert dict((await cache.get("ada", "s1")).state) == state | {"k0": "new", "user:u": 1, "temp:t": 2}

    async def test_a_session_that_begins_too_large_is_not_created(self, cache: Cache) -> None:
        state = {f"k{number}": number for number in range(20_001)}
        await raised(LimitExceededError, cache.create("ada", session_id="s1", state=state | {"user:u": 1}))
        assert (await cache.list()).items == []
        assert await cache.user_scope("ada").get("u") is None


async def _open(open_cache: OpenCache, **names: Any) -> None:
    async with open_cache(**names):
        pass
