"""Writes: one atomic step each, and no update overwrites another's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sessioncache.errors import InvalidNameError, InvalidValueError, StaleSessionError, TypeMismatchError
from sessioncache.testing.conformance.base import Cache, Conformance, exact, raised


class TestUpdates(Conformance):
    """set, update, delete, refresh."""

    async def test_update_sets_and_deletes_in_one_step(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 2, "user:u": 1, "app:p": 1, "temp:t": 1})
        revision = await made.update({"c": 3, "app:q": 4}, delete=["a", "user:u", "temp:t", "absent"])
        expected = {"b": 2, "c": 3, "app:p": 1, "app:q": 4}
        assert dict(made.state) == expected
        found = await cache.get("ada", made.id)
        assert dict(found.state) == expected
        assert found.revision == made.revision == revision

    async def test_revisions_grow_with_every_write(self, cache: Cache) -> None:
        made = await cache.create("ada")
        revisions = [made.revision, *[await made.set("a", number) for number in range(20)]]
        assert revisions == sorted(set(revisions))
        assert made.revision == revisions[-1]

    async def test_two_handles_of_different_keys_both_keep_them(self, cache: Cache) -> None:
        first = await cache.create("ada", session_id="s1", state={"a": 0, "b": 0, "user:u": 0, "user:v": 0})
        second = await cache.get("ada", "s1")
        await first.update({"a": 1, "user:u": 1})
        await second.update({"b": 2, "user:v": 2})
        await first.set("c", 3)
        expected = {"a": 1, "b": 2, "c": 3, "user:u": 1, "user:v": 2}
        assert dict((await cache.get("ada", "s1")).state) == expected

    async def test_state_is_what_was_read_and_get_is_fresh(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "gone": 1})
        await (await cache.get("ada", made.id)).update({"a": 2, "new": 1}, delete=["gone"])
        assert dict(made.state) == {"a": 1, "gone": 1}
        assert await made.get("a") == 2
        assert await made.get("gone") is None
        assert dict(made.state) == {"a": 2}
        await made.refresh()
        assert dict(made.state) == {"a": 2, "new": 1}

    async def test_state_is_a_read_only_mapping(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "user:u": 2})
        view = made.state
        assert view == {"a": 1, "user:u": 2}
        assert (len(view), set(view), "b" in view) == (2, {"a", "user:u"}, False)
        with pytest.raises(TypeError):
            view["a"] = 2

    async def test_get_tells_absent_from_present(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": False})
        assert await made.get("absent") is None
        assert await made.get("absent", "default") == "default"
        assert await made.get("a", "default") is False

    async def test_delete_tells_whether_the_key_existed(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "user:u": 1, "temp:t": 1})
        for key in ("a", "user:u", "temp:t"):
            assert await made.delete(key) is True
            assert await made.delete(key) is False
        await made.refresh()
        assert dict(made.state) == {}

    async def test_what_was_deleted_stays_deleted_after_a_flush(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 2})
        await made.flush()
        await made.delete("a")
        await made.flush()
        assert dict((await cache.get("ada", made.id)).state) == {"b": 2}

    async def test_deleting_what_is_absent_moves_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada")
        before = made.revision
        assert await made.delete("absent") is False
        found = await cache.get("ada", made.id)
        assert (found.revision, found.updated_at) == (before, made.created_at)

    async def test_keys_both_set_and_deleted_are_refused(self, cache: Cache) -> None:
        made = await cache.create("ada")
        await raised(InvalidNameError, made.update({"a": 1}, delete=["a"]))
        await raised(InvalidNameError, made.update({}, delete="abc"))
        assert await made.get("a") is None


class TestRevisions(Conformance):
    """if_revision, and what moves a session's revision and time."""

    async def test_a_write_on_another_revision_is_refused_whole(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 1})
        first = made.revision
        await (await cache.get("ada", made.id)).set("a", 2)
        change = {"a": 3, "user:u": 3, "app:p": 3, "temp:t": 3}
        await raised(StaleSessionError, made.update(change, delete=["b"], if_revision=first))
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {"a": 2, "b": 1}
        assert await found.update({"a": 3}, if_revision=found.revision) == found.revision
        assert await made.get("a") == 3

    async def test_the_revision_stands_for_what_the_state_shows(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "n": 0})
        other = await cache.get("ada", made.id)
        await other.set("a", "of another")
        seen = made.revision
        for own in (made.set("b", 1), made.increment("n"), made.get("a"), made.set("temp:t", 1), made.touch()):
            await own
            assert made.revision == seen
            await raised(StaleSessionError, made.update({"a": "unseen"}, if_revision=made.revision))
        await made.refresh()
        assert (made.state["a"], made.revision > seen) == ("of another", True)
        await made.update({"a": "seen"}, if_revision=made.revision)
        await made.delete("b")
        assert await made.append("list", 1) == 1
        assert await made.update({"a": "mine"}, if_revision=made.revision) == made.revision

    async def test_what_is_no_value_does_not_make_the_revision_stale(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        other = await cache.get("ada", made.id)
        await other.touch(messages=1)
        await other.rename("of another")
        await other.namespace("n").set("a", 1)
        await other.set("user:u", 1)
        await made.set("b", 1)
        await made.update({"a": 2}, if_revision=made.revision)
        assert (await cache.get("ada", made.id)).revision == made.revision

    async def test_the_revision_of_a_namespace_stands_for_what_its_state_shows(self, cache: Cache) -> None:
        made = await cache.create("ada")
        mine, others = made.namespace("n"), made.namespace("n")
        await mine.set("a", 1)
        await mine.refresh()
        await others.set("a", "of another")
        await mine.set("b", 1)
        assert mine.state["a"] == 1
        await raised(StaleSessionError, mine.update({"a": "unseen"}, if_revision=mine.revision))
        await mine.refresh()
        await mine.set("b", 2)
        assert await mine.update({"a": "seen"}, if_revision=mine.revision) == mine.revision

    async def test_a_batch_moves_the_revision_no_further_than_its_calls(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        await (await cache.get("ada", made.id)).set("a", "of another")
        async with cache.batch() as batch:
            batch.on(made).set("b", 1)
            batch.on(made).get("a")
        await raised(StaleSessionError, made.update({"a": "unseen"}, if_revision=made.revision))

    async def test_shared_and_temp_writes_leave_the_revision_alone(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        before = (made.revision, made.updated_at)
        other = await cache.get("ada", made.id)
        await other.update({"user:u": 1, "app:p": 1, "temp:t": 1})
        await other.update({}, delete=["user:u", "app:p", "temp:t"])
        found = await cache.get("ada", made.id)
        assert (found.revision, found.updated_at) == before
        await made.update({"a": 2}, if_revision=before[0])

    async def test_a_write_to_the_sessions_own_keys_moves_both(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        before = (made.revision, made.updated_at, made.created_at)
        revision = await made.update({"a": 2, "user:u": 2})
        assert made.revision == revision > before[0]
        assert made.updated_at > before[1]
        found = await cache.get("ada", made.id)
        assert (found.revision, found.updated_at, found.created_at) == (revision, made.updated_at, before[2])


class TestEdits(Conformance):
    """Drafts that are written in one step, only if nobody else changed what they change."""

    async def test_an_edit_writes_what_differs_nested_changes_too(self, cache: Cache) -> None:
        state = {"cfg": {"items": [1]}, "same": [1], "gone": 1, "user:u": {"n": 1}, "temp:t": 1}
        made = await cache.create("ada", state=state)
        before = made.revision
        async with made.edit() as draft:
            assert draft["same"] == [1]
            draft["cfg"]["items"].append(2)
            draft["user:u"]["n"] += 1
            del draft["gone"]
            draft["new"] = True
            assert draft.pop("temp:t") == 1
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {"cfg": {"items": [1, 2]}, "same": [1], "user:u": {"n": 2}, "new": True}
        assert found.revision == made.revision > before

    async def test_a_draft_behaves_like_a_dict(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 2})
        async with made.edit() as draft:
            assert dict(draft) == {"a": 1, "b": 2}
            assert draft.get("c", 3) == 3
            assert draft.setdefault("c", 4) == 4
            draft.update({"d": 5})
            assert "c" in draft
            del draft["a"]
            assert "a" not in draft
            assert len(draft) == 3
            with pytest.raises(KeyError):
                draft["a"]
        assert dict(made.state) == {"b": 2, "c": 4, "d": 5}

    async def test_a_draft_begins_with_fresh_values(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"n": 1})
        await (await cache.get("ada", made.id)).set("n", 2)
        async with made.edit() as draft:
            draft["n"] += 1
        assert await made.get("n") == 3

    async def test_an_edit_without_a_difference_writes_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": [1], "f": 1.0})
        before = made.revision
        async with made.edit() as draft:
            draft["a"] = [1]
            draft["f"] += 0
        assert (await cache.get("ada", made.id)).revision == before

    async def test_a_change_of_type_alone_is_a_difference(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"f": 1.0})
        async with made.edit() as draft:
            draft["f"] = 1
        assert exact(await made.get("f")) == "1"

    async def test_an_edit_conflicts_on_the_keys_it_changed_only(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 1, "user:u": 1})
        other = await cache.get("ada", made.id)
        async with made.edit() as draft:
            await other.update({"b": 2, "user:u": 2, "new": 1})
            draft["a"] += draft["b"]
        assert dict((await cache.get("ada", made.id)).state) == {"a": 2, "b": 2, "user:u": 2, "new": 1}

    async def test_a_conflict_names_the_keys_and_writes_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 1, "user:u": 1})
        other = await cache.get("ada", made.id)

        async def conflict() -> None:
            async with made.edit() as draft:
                await other.update({"b": 2, "user:u": 2, "fresh": 2})
                draft.update(dict.fromkeys(("a", "b", "user:u", "fresh"), "mine"))

        error = await raised(StaleSessionError, conflict())
        assert sorted(error.keys) == ["b", "fresh", "user:u"]
        assert dict((await cache.get("ada", made.id)).state) == {"a": 1, "b": 2, "user:u": 2, "fresh": 2}

    async def test_an_edit_notices_a_key_that_went_and_came_back(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        other = await cache.get("ada", made.id)

        async def conflict() -> None:
            async with made.edit() as draft:
                await other.delete("a")
                await other.set("a", 1)
                draft["a"] = 2

        assert (await raised(StaleSessionError, conflict())).keys == ("a",)

    async def test_an_edit_may_overwrite(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 1})
        async with made.edit(overwrite=True) as draft:
            await (await cache.get("ada", made.id)).update({"a": 2, "b": 2})
            draft["a"] = 3
        assert dict((await cache.get("ada", made.id)).state) == {"a": 3, "b": 2}

    async def test_an_exception_in_an_edit_writes_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})

        async def stumble() -> None:
            async with made.edit() as draft:
                draft["a"] = 2
                draft["b"] = draft["missing"]

        async def set_no_value() -> None:
            async with made.edit() as draft:
                draft["a"] = 2
                draft["b"] = math.nan

        await raised(KeyError, stumble())
        await raised(InvalidValueError, set_no_value())
        assert dict((await cache.get("ada", made.id)).state) == {"a": 1}


class TestCounting(Conformance):
    """increment and append."""

    @pytest.mark.parametrize("prefix", ["", "user:", "app:", "temp:"])
    async def test_increment_counts_from_nothing(self, cache: Cache, prefix: str) -> None:
        made = await cache.create("ada")
        assert await made.increment(prefix + "n") == 1
        assert await made.increment(prefix + "n", 41) == 42
        assert await made.increment(prefix + "n", -43) == -1
        assert made.state[prefix + "n"] == -1
        assert await (await cache.get("ada", made.id)).get(prefix + "n") == -1

    async def test_increment_keeps_to_the_rules_of_python_numbers(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"f": 1.0, "sum": 0.1})
        assert exact(await made.increment("f")) == "2.0"
        assert exact(await made.increment("sum", 0.2)) == exact(0.1 + 0.2)
        assert exact(await made.increment("new", 1.0)) == "1.0"
        assert exact(await made.get("f")) == "2.0"

    @pytest.mark.parametrize(("start", "by"), [(2**53, 1), (2**70, -1), (999_999_999_999_999, 1), (-(10**30), 1)])
    async def test_increment_is_exact_for_large_numbers(self, cache: Cache, start: int, by: int) -> None:
        made = await cache.create("ada", state={"n": start})
        assert exact(await made.increment("n", by)) == exact(start + by)
        assert exact(await made.get("n")) == exact(start + by)

    @pytest.mark.parametrize("value", ["1", True, None, [1], {"a": 1}], ids=repr)
    async def test_increment_refuses_what_is_no_number(self, cache: Cache, value: Any) -> None:
        made = await cache.create("ada", state={"x": value})
        assert (await raised(TypeMismatchError, made.increment("x"))).key == "x"
        assert exact(await made.get("x")) == exact(value)

    @pytest.mark.parametrize("by", [True, "1", None, math.inf, math.nan], ids=repr)
    async def test_increment_refuses_to_add_what_is_no_number(self, cache: Cache, by: Any) -> None:
        made = await cache.create("ada")
        await raised(InvalidValueError, made.increment("x", by))
        assert await made.get("x") is None

    @pytest.mark.parametrize("prefix", ["", "user:", "app:", "temp:"])
    async def test_append_creates_and_grows(self, cache: Cache, prefix: str) -> None:
        made = await cache.create("ada")
        assert await made.append(prefix + "l", 1) == 1
        assert await made.append(prefix + "l", [2], None, "]", {"x": 1.0}) == 5
        assert exact(await made.get(prefix + "l")) == exact([1, [2], None, "]", {"x": 1.0}])
        assert len(made.state[prefix + "l"]) == 5

    async def test_append_to_an_empty_list_and_of_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"l": []})
        assert await made.append("l") == 0
        assert await made.append("l", []) == 1
        assert await made.append("l") == 1
        assert await made.append("new") == 0
        assert (await made.get("l"), await made.get("new")) == ([[]], [])

    @pytest.mark.parametrize("value", ["[]", 1, None, {"a": []}], ids=repr)
    async def test_append_refuses_what_is_no_list(self, cache: Cache, value: Any) -> None:
        made = await cache.create("ada", state={"x": value})
        assert (await raised(TypeMismatchError, made.append("x", 1))).key == "x"
        assert await made.get("x") == value
