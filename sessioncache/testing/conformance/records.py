"""Records: the private keys of a session, with the time of their last change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from sessioncache.errors import InvalidNameError, InvalidValueError, SessionNotFoundError, StaleSessionError
from sessioncache.records import Record
from sessioncache.testing.conformance.base import Cache, Conformance, exact, raised
from sessioncache.testing.conformance.values import VALUES

T0 = datetime(2020, 1, 2, 3, 4, 5, 678901, UTC)
TICK = timedelta(microseconds=1)
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=2**54 - 1)


async def shown(session: Any) -> dict[str, tuple[Any, datetime]]:
    """Value and time of each record of a session."""
    return {one.key: (one.value, one.updated_at) for one in await session.records()}


class TestRecords(Conformance):
    """s.records and s.upsert_record."""

    async def test_every_plain_key_is_a_record(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"b": [1], "user:u": 1, "app:p": 1, "temp:t": 1})
        await made.namespace("n").set("x", 1)
        assert await made.upsert_record(Record("a", {"n": None}, T0)) is True
        await made.set("é", "text")
        records = await made.records()
        assert [(one.key, one.value, one.session_id) for one in records] == [
            ("a", {"n": None}, made.id),
            ("b", [1], made.id),
            ("é", "text", made.id),
        ]
        assert all(isinstance(one, Record) for one in records)

    async def test_a_session_without_plain_keys_has_none(self, cache: Cache) -> None:
        assert await (await cache.create("ada", state={"user:u": 1})).records() == []

    async def test_the_id_is_the_same_for_a_key_of_a_session(self, cache: Cache) -> None:
        made, other = await cache.create("ada", state={"a": 1, "b": 1}), await cache.create("ada", state={"a": 1})
        before = {one.key: one.id for one in await made.records()}
        await made.set("a", 2)
        await made.delete("b")
        await made.upsert_record(Record("b", 2, T0))
        assert {one.key: one.id for one in await made.records()} == before
        assert len({*before.values(), *(one.id for one in await other.records())}) == 3
        assert all(name.startswith("rec_") and len(name) == 28 for name in before.values())

    async def test_a_record_is_as_old_as_its_write_where_no_time_was_given(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        assert await shown(made) == {"a": (1, made.created_at)}
        for write in (made.set("a", 2), made.upsert_record(Record("a", 3)), made.increment("a")):
            (before,) = await made.records()
            await write
            (after,) = await made.records()
            assert after.updated_at == made.updated_at > before.updated_at

    async def test_the_given_time_comes_back_exactly(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        times = {"first": FIRST, "early": FIRST + TICK, "past": T0, "far": LAST - TICK, "last": LAST}
        for key, at in times.items():
            assert await made.upsert_record(Record(key, key, at)) is True
        await cache.flush()
        found = await cache.get("ada", "s1")
        assert {one.key: one.updated_at for one in await found.records()} == times
        assert dict(found.state) == {key: key for key in times}

    async def test_times_of_other_zones_are_instants(self, cache: Cache) -> None:
        made = await cache.create("ada")
        await made.upsert_record(Record("a", 1, T0.astimezone(timezone(timedelta(hours=-5, minutes=-30)))))
        ((_, at),) = (await shown(made)).values()
        assert at == T0
        assert at.utcoffset() == timedelta(0)

    async def test_values_come_back_exactly_by_every_way_of_reading(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        for key, value in VALUES.items():
            await made.upsert_record(Record(key, value, T0))
        wanted = {key: exact(value) for key, value in VALUES.items()}
        assert {key: exact(value) for key, value in made.state.items()} == wanted
        await cache.flush()
        found = await cache.get("ada", "s1")
        assert {one.key: exact(one.value) for one in await made.records()} == wanted
        assert {key: exact(value) for key, value in found.state.items()} == wanted
        assert {key: exact(await found.get(key)) for key in VALUES} == wanted
        assert {key: exact(value) for key, value in (await found.export())["state"].items()} == wanted

    async def test_an_older_record_changes_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada")
        await made.upsert_record(Record("a", "kept", T0))
        before = (made.revision, made.updated_at, await made.records())
        assert await made.upsert_record(Record("a", "older", T0 - TICK)) is False
        assert made.state["a"] == "kept"
        assert await made.get("a") == "kept"
        found = await cache.get("ada", made.id)
        assert (found.revision, found.updated_at, await found.records()) == before
        assert (made.revision, made.updated_at) == before[:2]
        await made.update({"b": 1}, if_revision=before[0])

    async def test_an_equal_or_newer_record_is_taken(self, cache: Cache) -> None:
        made = await cache.create("ada")
        for step, at in enumerate((T0, T0, T0 + TICK, LAST - TICK, LAST - TICK, LAST)):
            assert await made.upsert_record(Record("a", step, at)) is True
            assert await shown(made) == {"a": (step, at)}

    async def test_times_that_differ_by_a_microsecond_are_told_apart_for_ever(self, cache: Cache) -> None:
        made = await cache.create("ada")
        for back in range(4):
            await made.upsert_record(Record(str(back), "kept", LAST - back * TICK))
            assert await made.upsert_record(Record(str(back), "older", LAST - (back + 1) * TICK)) is False
            assert await made.get(str(back)) == "kept"

    async def test_a_write_without_a_time_is_compared_by_its_own(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": "now"})
        (record,) = await made.records()
        assert await made.upsert_record(Record("a", "older", record.updated_at - TICK)) is False
        assert await made.upsert_record(Record("a", "same", record.updated_at)) is True
        assert await made.upsert_record(Record("a", "newest")) is True
        assert await made.upsert_record(Record("a", "older", record.updated_at)) is False
        assert await made.get("a") == "newest"

    async def test_a_record_that_was_read_can_be_given_back(self, cache: Cache) -> None:
        made, other = await cache.create("ada", state={"a": [1]}), await cache.create("ada")
        (record,) = await made.records()
        assert await made.upsert_record(record) is True
        assert await other.upsert_record(record) is True
        assert await made.records() == [record]
        assert await shown(other) == await shown(made)

    async def test_where_a_key_was_deleted_anything_is_taken(self, cache: Cache) -> None:
        made = await cache.create("ada")
        for removal in (made.delete("a"), made.clear()):
            await made.upsert_record(Record("a", "late", LAST))
            await removal
            assert await made.records() == []
            assert await made.upsert_record(Record("a", "early", FIRST)) is True
            assert await shown(made) == {"a": ("early", FIRST)}

    async def test_any_other_write_makes_it_as_old_as_the_write(self, cache: Cache) -> None:
        made = await cache.create("ada")
        writes: dict[str, tuple[Any, Callable[[], Awaitable[Any]], Any]] = {
            "set": (1, lambda: made.set("set", 2), 2),
            "update": (1, lambda: made.update({"update": 2}), 2),
            "increment": (1, lambda: made.increment("increment"), 2),
            "far": (2**60, lambda: made.increment("far", 2**60), 2**61),
            "fraction": (0.5, lambda: made.increment("fraction"), 1.5),
            "append": ([1], lambda: made.append("append", 2), [1, 2]),
            "fill": ([], lambda: made.append("fill", 1), [1]),
            "nothing": ([1], lambda: made.append("nothing"), [1]),
        }
        for key, (value, write, expected) in writes.items():
            await made.upsert_record(Record(key, value, FIRST))
            await write()
            assert (await shown(made))[key] == (expected, made.updated_at)
            assert exact(made.state[key]) == exact(expected)

    async def test_an_edit_moves_the_time_of_what_it_changes(self, cache: Cache) -> None:
        made = await cache.create("ada")
        for key in ("same", "changed", "gone"):
            await made.upsert_record(Record(key, {"n": [1]}, T0))
        async with made.edit() as draft:
            assert draft["same"] == {"n": [1]}
            draft["changed"]["n"].append(2)
            del draft["gone"]
        assert await shown(made) == {"same": ({"n": [1]}, T0), "changed": ({"n": [1, 2]}, made.updated_at)}

    async def test_an_edit_conflicts_with_an_upsert(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})

        async def conflict() -> None:
            async with made.edit() as draft:
                await (await cache.get("ada", made.id)).upsert_record(Record("a", 2, LAST))
                draft["a"] = 3

        assert (await raised(StaleSessionError, conflict())).keys == ("a",)

    async def test_an_upsert_is_a_write_of_the_session(self, cache: Cache) -> None:
        made = await cache.create("ada")
        before = (made.revision, made.updated_at)
        await made.upsert_record(Record("a", 1, FIRST))
        found = await cache.get("ada", made.id)
        assert (found.revision, found.updated_at) == (made.revision, made.updated_at)
        assert found.revision > before[0]
        assert found.updated_at > before[1]

    async def test_reading_the_records_refreshes_the_sessions_own_keys(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "gone": 1, "user:u": 1})
        other = await cache.get("ada", made.id)
        await other.update({"a": 2, "b": 3, "user:u": 2}, delete=["gone"])
        await made.records()
        assert dict(made.state) == {"a": 2, "b": 3, "user:u": 1}

    async def test_a_fork_keeps_given_times(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"own": 1})
        await made.upsert_record(Record("given", 1, T0))
        child = await made.fork()
        assert await shown(child) == {"given": (1, T0), "own": (1, child.created_at)}
        assert not {one.id for one in await child.records()} & {one.id for one in await made.records()}
        assert await child.upsert_record(Record("given", 2, T0 - TICK)) is False

    async def test_only_plain_keys_are_records(self, cache: Cache) -> None:
        made = await cache.create("ada")
        keys: list[Any] = ["user:a", "app:a", "temp:a", "", "x" * 257, "a\0b", 1, None]
        for key in keys:
            for at in (None, T0):
                await raised(InvalidNameError, made.upsert_record(Record(key, 1, at)))
        await made.refresh()
        assert dict(made.state) == {}

    async def test_a_wrong_time_is_refused(self, cache: Cache) -> None:
        made = await cache.create("ada")
        wrong: list[Any] = [datetime(2020, 1, 1), FIRST - TICK, LAST + TICK, 1.5, "2020-01-01T00:00:00+00:00"]
        for at in wrong:
            error = await raised(InvalidValueError, made.upsert_record(Record("a", 1, at)))
            assert (error.path, error.type_name) == ("updated_at", type(at).__name__)
        assert await made.records() == []

    async def test_a_wrong_value_is_refused(self, cache: Cache) -> None:
        made = await cache.create("ada")
        error = await raised(InvalidValueError, made.upsert_record(Record("a", [T0], T0)))
        assert error.path == "a[0]"
        await raised(InvalidValueError, made.upsert_record({"key": "a"}))
        assert await made.records() == []

    async def test_an_old_handle_neither_gives_nor_takes_records(self, cache: Cache) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.delete("ada", "s1")
        for _ in range(2):
            for call in (old.records(), old.upsert_record(Record("a", 2)), old.upsert_record(Record("a", 2, T0))):
                await raised(SessionNotFoundError, call)
            new = await cache.get_or_create("ada", "s1")
        assert await new[0].records() == []

    async def test_the_newest_of_many_at_once_wins(self, cache: Cache) -> None:
        made = await cache.create("ada")
        order = [n * 7 % 40 for n in range(40)]
        taken = await asyncio.gather(*(made.upsert_record(Record("a", n, T0 + n * TICK)) for n in order))
        assert taken[order.index(39)] is True
        assert await shown(made) == {"a": (39, T0 + 39 * TICK)}
