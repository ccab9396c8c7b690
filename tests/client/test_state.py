"""The state of a session: every way to write and read it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache import (
    InvalidNameError,
    InvalidValueError,
    LimitExceededError,
    Session,
    SessionCache,
    StaleSessionError,
    TypeMismatchError,
)
from tests.helpers import Urls, app, connect, drain, evict, session, stored_values, user


@pytest.fixture
async def made(cache: SessionCache) -> Session:
    """A session."""
    return await cache.create("ada", session_id="s1")


VALUES: dict[str, Any] = {
    "null": None,
    "yes": True,
    "zero": 0,
    "float": 1.0,
    "minus": -0.0,
    "big": 2**70,
    "sum": 0.1 + 0.2,
    "tiny": 5e-324,
    "text": "a\0b\ud800\u2028 é 😀 \x7f",
    "list": [1, [2.0, {"x": None}], "y"],
    "dict": {"b": 1, "a": {"": [], "\ud800": {}}},
    "long": "x" * 100_000,
}


def exact(value: Any) -> str:
    """A text that tells all that R19 asks to keep: types, signs, digits, order."""
    return repr(value)


async def test_values_come_back_exactly_hot_and_cold(cache: SessionCache, made: Session, urls: Urls) -> None:
    await made.update(VALUES | {f"user:{k}": v for k, v in VALUES.items()})
    expected = exact(sorted(made.state.items()))
    assert exact(sorted((await cache.get("ada", "s1")).state.items())) == expected
    await drain(urls)
    evict(urls.redis)
    cold = await cache.get("ada", "s1")
    assert exact(sorted(cold.state.items())) == expected
    for key, value in VALUES.items():
        assert exact(await cold.get(key)) == exact(value)


async def test_keys_live_where_their_first_prefix_says(cache: SessionCache, made: Session, urls: Urls) -> None:
    keys = ["plain", "user:u", "app:p", "temp:t", "app:temp:x", "user:", "foo:x", "APP:x", "User:x", "temp", ":"]
    await made.update({key: key for key in keys})
    assert dict((await cache.get("ada", "s1")).state) == {key: key for key in keys}
    await drain(urls)
    own = ["plain", "foo:x", "APP:x", "User:x", "temp", ":"]
    assert stored_values(urls.database, session("ada", "s1")) == {key: key for key in own}
    assert stored_values(urls.database, user("ada")) == {"u": "user:u", "": "user:"}
    assert stored_values(urls.database, app()) == {"p": "app:p", "temp:x": "app:temp:x"}


async def test_shared_keys_are_seen_by_other_sessions(cache: SessionCache, made: Session) -> None:
    same_user = await cache.create("ada")
    other_user = await cache.create("bob")
    await made.update({"own": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
    await same_user.refresh()
    await other_user.refresh()
    assert dict(same_user.state) == {"user:u": 1, "app:p": 1}
    assert dict(other_user.state) == {"app:p": 1}


async def test_get_reads_what_others_wrote_and_state_does_not(cache: SessionCache, made: Session, urls: Urls) -> None:
    await made.set("a", 1)
    async with connect(urls) as other:
        await (await other.get("ada", "s1")).set("a", 2)
    assert made.state["a"] == 1
    assert await made.get("a") == 2
    assert made.state["a"] == 2
    assert await made.get("absent") is None
    assert await made.get("absent", "default") == "default"


async def test_a_stored_null_is_not_a_deletion(made: Session) -> None:
    await made.set("a", None)
    assert await made.get("a", "default") is None
    assert await made.delete("a") is True
    assert await made.get("a", "default") == "default"


async def test_a_dict_replaces_and_is_not_merged(made: Session) -> None:
    await made.set("a", {"x": 1})
    await made.set("a", {"y": 2})
    assert await made.get("a") == {"y": 2}


async def test_update_sets_and_deletes_in_one_step(cache: SessionCache, made: Session) -> None:
    await made.update({"a": 1, "b": 2, "user:u": 1, "temp:t": 1})
    revision = await made.update({"c": 3}, delete=["a", "user:u", "temp:t", "absent"])
    assert dict(made.state) == {"b": 2, "c": 3}
    found = await cache.get("ada", "s1")
    assert dict(found.state) == {"b": 2, "c": 3}
    assert found.revision == revision


async def test_what_was_deleted_stays_deleted_cold(cache: SessionCache, made: Session, urls: Urls) -> None:
    await made.update({"a": 1, "b": 2})
    await drain(urls)
    await made.delete("a")
    await drain(urls)
    evict(urls.redis)
    assert dict((await cache.get("ada", "s1")).state) == {"b": 2}
    assert stored_values(urls.database, session("ada", "s1")) == {"b": 2}


async def test_revisions_grow_with_every_write(made: Session) -> None:
    revisions = [await made.set("a", number) for number in range(50)]
    assert revisions == sorted(set(revisions))
    assert made.revision == revisions[-1]


async def test_a_write_on_another_revision_is_refused(cache: SessionCache, made: Session) -> None:
    first = await made.set("a", 1)
    await (await cache.get("ada", "s1")).set("a", 2)
    with pytest.raises(StaleSessionError):
        await made.update({"a": 3, "user:u": 3, "app:p": 3, "temp:t": 3}, delete=["b"], if_revision=first)
    found = await cache.get("ada", "s1")
    assert dict(found.state) == {"a": 2}
    await found.update({"a": 3}, if_revision=found.revision)
    assert await made.get("a") == 3


async def test_shared_writes_do_not_make_a_revision_stale(cache: SessionCache, made: Session) -> None:
    revision = await made.set("a", 1)
    other = await cache.get("ada", "s1")
    await other.update({"user:u": 1, "app:p": 1, "temp:t": 1})
    await made.update({"a": 2}, if_revision=revision)
    assert await other.get("a") == 2


async def test_if_revision_holds_cold_too(cache: SessionCache, made: Session, urls: Urls) -> None:
    revision = await made.set("a", 1)
    await drain(urls)
    evict(urls.redis)
    with pytest.raises(StaleSessionError):
        await made.update({"a": 2}, if_revision=revision - 1)
    await made.update({"a": 2}, if_revision=revision)


async def test_the_state_view_is_not_aliased(made: Session) -> None:
    value = {"items": [1]}
    await made.set("cfg", value)
    value["items"].append(2)
    made.state["cfg"]["items"].append(3)
    (await made.get("cfg"))["items"].append(4)
    assert made.state["cfg"] == {"items": [1]}
    assert await made.get("cfg") == {"items": [1]}
    with pytest.raises(TypeError):
        made.state["cfg"] = 1  # type: ignore[index]


async def test_a_state_view_is_a_mapping(made: Session) -> None:
    await made.update({"a": 1, "user:u": 2})
    view = made.state
    assert view == {"a": 1, "user:u": 2}
    assert len(view) == 2
    assert set(view) == {"a", "user:u"}
    assert "b" not in view
    assert "1" not in repr(view)


# ---- edit


async def test_an_edit_writes_what_differs_nested_changes_too(cache: SessionCache, made: Session) -> None:
    await made.update({"cfg": {"items": [1]}, "same": [1], "gone": 1, "user:u": {"n": 1}, "temp:t": 1})
    untouched = made.revision
    async with made.edit() as draft:
        assert draft["same"] == [1]
        draft["cfg"]["items"].append(2)
        draft["user:u"]["n"] += 1
        del draft["gone"]
        draft["new"] = True
        draft.pop("temp:t")
    found = await cache.get("ada", "s1")
    assert dict(found.state) == {"cfg": {"items": [1, 2]}, "same": [1], "user:u": {"n": 2}, "new": True}
    assert found.revision > untouched


async def test_an_edit_without_changes_writes_nothing(made: Session, urls: Urls) -> None:
    await made.update({"a": [1], "f": 1.0})
    revision = made.revision
    async with made.edit() as draft:
        draft["a"] = [1]
        assert draft["f"] == 1.0
    assert made.revision == revision
    async with made.edit() as draft:
        draft["f"] = 1
    assert exact(await made.get("f")) == "1"


async def test_an_edit_conflicts_only_on_keys_it_changed(cache: SessionCache, made: Session) -> None:
    await made.update({"a": 1, "b": 1, "user:u": 1})
    other = await cache.get("ada", "s1")
    async with made.edit() as draft:
        await other.update({"b": 2, "user:u": 2, "new": 1})
        draft["a"] += draft["b"]
    assert await other.get("a") == 2

    async def conflict() -> None:
        async with made.edit() as draft:
            await other.update({"b": 3, "user:u": 3, "fresh": 1})
            draft.update(dict.fromkeys(("a", "b", "user:u", "fresh"), "no"))

    with pytest.raises(StaleSessionError) as told:
        await conflict()
    assert sorted(told.value.keys) == ["b", "fresh", "user:u"]
    await other.refresh()
    assert dict(other.state) == {"a": 2, "b": 3, "user:u": 3, "new": 1, "fresh": 1}


async def test_an_edit_notices_a_key_that_went_and_came_back(cache: SessionCache, made: Session) -> None:
    await made.set("a", 1)
    other = await cache.get("ada", "s1")

    async def set_what_came_back() -> None:
        async with made.edit() as draft:
            await other.delete("a")
            await other.set("a", 1)
            draft["a"] = 2

    async def delete_what_went() -> None:
        async with made.edit() as draft:
            await other.delete("a")
            del draft["a"]

    for conflict in (set_what_came_back, delete_what_went):
        with pytest.raises(StaleSessionError):
            await conflict()


async def test_an_edit_may_overwrite(cache: SessionCache, made: Session) -> None:
    await made.set("a", 1)
    async with made.edit(overwrite=True) as draft:
        await (await cache.get("ada", "s1")).set("a", 2)
        draft["a"] = 3
    assert await made.get("a") == 3


async def test_an_exception_in_an_edit_writes_nothing(made: Session) -> None:
    await made.set("a", 1)

    async def stumble() -> None:
        async with made.edit() as draft:
            draft["a"] = 2
            draft["b"] = draft["missing"]

    async def set_no_value() -> None:
        async with made.edit() as draft:
            draft["a"] = 2
            draft["b"] = math.nan

    with pytest.raises(KeyError):
        await stumble()
    with pytest.raises(InvalidValueError):
        await set_no_value()
    assert await made.get("a") == 1


# ---- increment and append


async def test_increment_counts_from_nothing_and_keeps_the_type(made: Session) -> None:
    assert await made.increment("n") == 1
    assert await made.increment("n", 41) == 42
    assert await made.increment("n", -43) == -1
    assert exact(await made.increment("n", 0.5)) == "-0.5"
    assert exact(await made.increment("f", 1.0)) == "1.0"
    assert exact(await made.increment("f", 1)) == "2.0"
    assert exact(await made.get("f")) == "2.0"
    for key in ("user:n", "app:n", "temp:n"):
        assert await made.increment(key, 2) == 2
        assert made.state[key] == 2


@pytest.mark.parametrize(("start", "by"), [(2**53, 1), (2**70, -1), (999_999_999_999_999, 1), (-(10**30), 10**29)])
async def test_increment_is_exact_beyond_what_lua_can_count(made: Session, start: int, by: int) -> None:
    await made.set("n", start)
    assert exact(await made.increment("n", by)) == exact(start + by)
    assert exact(await made.get("n")) == exact(start + by)


@pytest.mark.parametrize("value", ["1", True, None, [1], {"a": 1}])
async def test_increment_refuses_what_is_no_number(made: Session, value: Any) -> None:
    await made.set("x", value)
    with pytest.raises(TypeMismatchError) as told:
        await made.increment("x")
    assert told.value.key == "x"
    assert await made.get("x") == value


@pytest.mark.parametrize("by", [True, "1", None, math.inf, math.nan])
async def test_increment_refuses_to_add_what_is_no_number(made: Session, by: Any) -> None:
    with pytest.raises(InvalidValueError):
        await made.increment("x", by)
    assert await made.get("x") is None


async def test_append_creates_and_grows(made: Session) -> None:
    assert await made.append("l", 1) == 1
    assert await made.append("l", [2], None, "x") == 4
    assert await made.get("l") == [1, [2], None, "x"]
    await made.set("l", [])
    assert await made.append("l", {}) == 1
    assert await made.append("user:l", 1) == 1
    assert await made.append("temp:l", 1, 2) == 2


async def test_appending_nothing_keeps_the_list(made: Session) -> None:
    assert await made.append("l") == 0
    assert await made.get("l") == []
    await made.append("l", 1, 2)
    assert await made.append("l") == 2
    assert await made.get("l") == [1, 2]


@pytest.mark.parametrize("value", ["[]", 1, None, {"a": []}])
async def test_append_refuses_what_is_no_list(made: Session, value: Any) -> None:
    await made.set("x", value)
    with pytest.raises(TypeMismatchError) as told:
        await made.append("x", 1)
    assert told.value.key == "x"
    assert await made.get("x") == value


# ---- what is refused


async def test_a_wrong_value_is_refused_with_its_path_and_nothing_is_applied(made: Session) -> None:
    with pytest.raises(InvalidValueError) as told:
        await made.update({"a": 1, "cfg": {"items": [{}, {}, {"price": {1, 2}}]}})
    assert told.value.path == "cfg.items[2].price"
    assert told.value.type_name == "set"
    with pytest.raises(InvalidValueError) as told:
        await made.append("l", 1, {"x": math.inf})
    assert told.value.path == "l[+1].x"
    await made.refresh()
    assert dict(made.state) == {}


@pytest.mark.parametrize("key", ["", "x" * 257, "é" * 129, "a\0b", "\ud800", "user:" + "x" * 257, 1, None, b"a"])
async def test_a_wrong_key_is_refused_by_every_call(made: Session, key: Any) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: made.get(key),
        lambda: made.set(key, 1),
        lambda: made.update({"ok": 1, key: 1}),
        lambda: made.update({"ok": 1}, delete=[key]),
        lambda: made.delete(key),
        lambda: made.increment(key),
        lambda: made.append(key, 1),
    ]
    for call in calls:
        with pytest.raises(InvalidNameError):
            await call()
    await made.refresh()
    assert dict(made.state) == {}


@pytest.mark.parametrize("name", ["x" * 257, "a\0b", "\ud800", 1, None])
async def test_a_wrong_user_or_session_id_is_refused(cache: SessionCache, name: Any) -> None:
    for call in (cache.get, cache.delete, cache.get_or_create):
        with pytest.raises(InvalidNameError):
            await call(name, "s")
        with pytest.raises(InvalidNameError):
            await call("u", name)
    with pytest.raises(InvalidNameError):
        await cache.create(name)
    with pytest.raises(InvalidNameError):
        cache.user_scope(name)
    with pytest.raises(InvalidNameError):
        await cache.get("u", "")


async def test_a_value_over_a_mebibyte_is_refused(made: Session) -> None:
    most = "x" * (1024 * 1024 - 2)
    await made.set("a", most)
    for key in ("a", "temp:a"):
        with pytest.raises(LimitExceededError):
            await made.set(key, most + "x")
    await made.set("l", ["x" * (1024 * 1024 - 10)])
    with pytest.raises(LimitExceededError):
        await made.append("l", "y" * 10)
    assert await made.get("a") == most


async def test_keys_both_set_and_deleted_are_refused(made: Session) -> None:
    with pytest.raises(InvalidNameError):
        await made.update({"a": 1}, delete=["a"])
    with pytest.raises(InvalidNameError):
        await made.update({}, delete="abc")
