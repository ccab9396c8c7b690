"""R18: how far scopes were flushed, as the database tells it, and what it does where that is less than it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import flushing
from sessioncache.durable.clearing import Cleared
from sessioncache.durable.tier import DurableTier
from sessioncache.primitives.entries import Dirt, StoredScope
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, namespace_ref
from tests.chaos.snapshot import dead_rows
from tests.durable_helpers import INCARNATION, app, count_rows, dirt, open_tier, put, session, user, values_of


@pytest.fixture
async def tier(database_url: str) -> AsyncIterator[DurableTier]:
    async with open_tier(database_url) as made:
        yield made


def known(dirt: Dirt, flushed: int) -> Dirt:
    """As read from a hash that knows to be flushed so far."""
    return replace(dirt, head=replace(dirt.head, flushed=flushed))


def of_space(revision: int, values: dict[str, bytes], *, host: int, flushed: int = 0, cleared: int = 0) -> Dirt:
    """Dirt of a namespace of the session, whose head is at `host`."""
    ref = namespace_ref(session(), "n")
    own = dirt(session(), revision, values, birth=1)
    return replace(
        own,
        kind=ScopeKind.NAMESPACE,
        scope_id=ref.id,
        namespace="n",
        holder=session().id,
        head=replace(own.head, revision=host),
        namespace_revision=revision,
        namespace_cleared=cleared,
        namespace_flushed=flushed,
    )


async def forgotten(tier: DurableTier, *batch: Dirt) -> list[str]:
    """The scopes that a flush leaves out."""
    result = await tier.flush(batch, read_after=await tier.clock())
    assert len(result.committed) + len(result.forgotten) == len(batch)
    return [one.scope_id for one in result.forgotten]


async def read(tier: DurableTier, ref: ScopeRef) -> StoredScope:
    (stored,) = await tier.read_scopes([(ref, INCARNATION)])
    return stored


@pytest.mark.parametrize("ref", [session(), user(), app()], ids=["session", "user", "app"])
async def test_a_scope_of_which_the_database_has_less_than_was_flushed_is_left_out(
    tier: DurableTier, ref: ScopeRef
) -> None:
    other = dirt(session("other"), 9, {"k": b"1"})
    assert await forgotten(tier, known(dirt(ref, 9, {"k": b"1"}), 5), other) == [ref.id]
    assert (await count_rows(tier, "state"), await values_of(tier, ref)) == (1, None)
    await put(tier, dirt(ref, 5, {"k": b"5"}))
    assert await forgotten(tier, known(dirt(ref, 9, {"k": b"9"}), 6)) == [ref.id]
    assert await values_of(tier, ref) == {"k": b"5"}
    assert await forgotten(tier, known(dirt(ref, 9, {"k": b"9"}), 5)) == []
    assert (await read(tier, ref)).head.flushed == 9


async def test_what_was_left_out_is_not_flushed(tier: DurableTier) -> None:
    await put(tier, dirt(user(), 5, {"k": b"5"}))
    await put(tier, replace(known(dirt(user(), 9, {"l": b"9"}), 5), left_out=True))
    assert ((await read(tier, user())).head.revision, (await read(tier, user())).head.flushed) == (9, 5)


async def test_the_flush_of_a_namespace_does_not_vouch_for_the_sessions_own_keys(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1))
    await put(tier, of_space(8, {"n": b"8"}, host=8))
    stored, space = await read(tier, session()), await read(tier, namespace_ref(session(), "n"))
    assert (stored.head.revision, stored.head.flushed, space.head.flushed) == (8, 5, 8)
    assert await forgotten(tier, known(dirt(session(), 9, {"k": b"9"}, birth=1), 7)) == [session().id]


async def test_a_flush_whose_head_came_late_tells_how_far_it_went(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 3, {"k": b"3"}, birth=1))
    await put(tier, of_space(8, {"n": b"8"}, host=8))
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1))
    stored = await read(tier, session())
    assert (stored.head.revision, stored.head.flushed) == (8, 5)


async def test_a_namespace_of_which_the_database_has_less_is_left_out_alone(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1), of_space(5, {"n": b"5"}, host=5))
    space = of_space(9, {"n": b"9"}, host=9, flushed=7)
    assert await forgotten(tier, space, dirt(session(), 9, {"k": b"9"}, birth=1)) == [space.scope_id]
    assert await values_of(tier, session()) == {"k": b"9"}
    assert [one.text for one in (await read(tier, namespace_ref(session(), "n"))).entries] == [b"5"]


async def test_late_dirt_of_a_deleted_session_is_no_older_database(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1), of_space(6, {"a": b"6"}, host=6))
    gone = dirt(session(), 9, {}, birth=1)
    await put(tier, replace(gone, head=replace(gone.head, cleared=9, deleted=True)))
    assert await forgotten(tier, of_space(8, {"a": b"8"}, host=8, flushed=6)) == []
    assert await count_rows(tier, "state") == 0


async def test_the_tombstone_of_a_session_that_was_purged_is_no_older_database(tier: DurableTier) -> None:
    head: dict[str, Any] = {"deleted": True, "cleared": 6, "birth": 1}
    late = known(dirt(session(), 6, **head), 6)
    assert await forgotten(tier, late) == [session().id], "it was never purged"
    async with tier.engine.begin() as connection:
        bucket = session().bucket
        await connection.exec_driver_sql(f"INSERT INTO sessioncache_purged (bucket, revision) VALUES ({bucket}, 6)")
    assert await forgotten(tier, late) == []


async def test_what_is_cleared_of_a_session_leaves_its_namespaces_alone(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"old": b"5", "k": b"5"}, birth=1), of_space(5, {"n": b"5"}, host=5))
    await put(tier, dirt(session(), 9, {"k": b"9"}, birth=1, cleared=8))
    assert await values_of(tier, session()) == {"k": b"9"}
    assert [one.text for one in (await read(tier, namespace_ref(session(), "n"))).entries] == [b"5"]
    assert await count_rows(tier, "state") == 2, "what was cleared is gone"
    async with tier.engine.connect() as connection:
        shown = await connection.exec_driver_sql("SELECT namespace, value FROM sessioncache_entries ORDER BY namespace")
        assert [tuple(one) for one in shown] == [("", "9"), ("n", "5")]
    await put(tier, of_space(12, {"m": b"12"}, host=12, flushed=5, cleared=11))
    assert [one.key for one in (await read(tier, namespace_ref(session(), "n"))).entries] == ["m"]
    assert await values_of(tier, session()) == {"k": b"9"}


async def test_only_what_has_changed_is_read_with_its_value(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"old": b"5", "gone": b"5", "long": b""}))
    await put(tier, dirt(session(), 9, {"new": b"9", "gone": b""}))
    (stored,) = await tier.read_changes([(session(), INCARNATION, 5)])
    assert {(one.key, one.revision, one.text) for one in stored.entries} == {("new", 9, b"9"), ("gone", 9, b"")}
    assert (stored.unchanged, stored.known) == ({"old": 5}, 9)


async def test_what_was_flushed_of_an_earlier_life_of_a_namespace_is_not_missed(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 20, birth=10, cleared=9))
    late = of_space(21, {"k": b"21"}, host=21, flushed=5, cleared=9)
    assert await forgotten(tier, replace(late, head=replace(late.head, birth=10, cleared=9))) == []


# ---- what is cleared


async def shown(tier: DurableTier) -> list[tuple[Any, ...]]:
    """What the view has."""
    async with tier.engine.connect() as connection:
        rows = await connection.exec_driver_sql("SELECT namespace, key FROM sessioncache_entries ORDER BY 1, 2")
        return [tuple(row) for row in rows]


async def test_late_rows_of_a_namespace_that_was_cleared_in_part_are_left_out(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, birth=1), of_space(5, {"a": b"5"}, host=5))
    await put(tier, replace(of_space(12, {"c": b"12"}, host=12, flushed=5, cleared=11), left_out=True))
    await put(tier, of_space(9, {"b": b"9"}, host=9, flushed=5))
    assert await count_rows(tier, "state") == 1
    head = (await read(tier, namespace_ref(session(), "n"))).head
    assert (head.cleared, head.flushed) == (11, 9), "all that was flushed and lives is there"
    assert await forgotten(tier, of_space(13, {"c": b"13"}, host=13, flushed=9, cleared=11)) == []


async def test_the_view_shows_nothing_that_was_cleared_of_a_namespace(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1), of_space(12, {"c": b"12"}, host=12))
    async with tier.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE sessioncache_namespace SET cleared = 11")
    assert await shown(tier) == [("", "k"), ("n", "c")]
    async with tier.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE sessioncache_namespace SET cleared = 12")
    assert await shown(tier) == [("", "k")]


async def test_what_the_head_in_sql_tells_already_is_not_removed_again(
    tier: DurableTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[int] = []

    async def record(_connection: AsyncConnection, cleared: Sequence[Cleared]) -> None:
        removed.append(len(cleared))

    monkeypatch.setattr(flushing, "drop_cleared", record)
    for number, cleared in ((1, 8), (2, 8), (3, 9)):
        for one in (
            dirt(session(), 10 * number, {"k": b"1"}, birth=5, cleared=cleared),
            of_space(10 * number, {"k": b"1"}, host=10 * number, cleared=cleared),
            dirt(user(), 10 * number, {"k": b"1"}, cleared=cleared),
        ):
            await put(tier, replace(one, left_out=True))
    # The session's first flush tells of its birth, too.
    assert removed == [2, 1, 1, 0, 0, 0, 1, 1, 1]


async def test_what_a_session_left_of_an_earlier_life_leaves_with_whatever_tells_of_the_new_one(
    tier: DurableTier,
) -> None:
    await put(tier, dirt(session(), 5, {"old": b"5"}, birth=1), of_space(5, {"old": b"5"}, host=5))
    space = of_space(12, {"n": b"12"}, host=12)
    await put(tier, replace(space, head=replace(space.head, birth=11, cleared=10)))
    assert await count_rows(tier, "state") == 1
    assert await values_of(tier, session()) == {}


async def test_of_a_scope_that_is_twice_in_a_batch_nothing_dead_stays(tier: DurableTier) -> None:
    newer = dirt(session(), 9, birth=1, cleared=8)
    await put(tier, newer)
    await put(tier, dirt(session(), 5, {"old": b"5"}, birth=1), newer)
    assert await count_rows(tier, "state") == 0


# ---- a batch that was read before and after the end of a life

Tables = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]


async def kept(tier: DurableTier) -> Tables:
    """All entries, dead ones too, and all records of namespaces."""
    async with tier.engine.connect() as connection:
        entries = await connection.exec_driver_sql("SELECT namespace, key FROM sessioncache_state ORDER BY 1, 2")
        records = await connection.exec_driver_sql("SELECT namespace, revision FROM sessioncache_namespace")
        return [tuple(row) for row in entries], [tuple(row) for row in records]


def reborn(one: Dirt, *, birth: int = 11, cleared: int = 10) -> Dirt:
    """As read in the session's next life, or since its keys were cleared."""
    return replace(one, head=replace(one.head, birth=birth, cleared=cleared))


@pytest.mark.parametrize("known_flushed", [0, 5], ids=["never flushed", "flushed before"])
async def test_a_namespace_read_in_an_earlier_life_than_its_session_leaves_nothing(
    tier: DurableTier, known_flushed: int
) -> None:
    old = of_space(6, {"secret": b"6"}, host=6, flushed=known_flushed)
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1), of_space(5, {"n": b"5"}, host=5))
    gone = dirt(session(), 9, {}, birth=1)
    await put(tier, replace(gone, head=replace(gone.head, cleared=9, deleted=True)))
    await put(tier, reborn(dirt(session(), 11)))
    assert await forgotten(tier, old, reborn(known(dirt(session(), 12, {"new": b"12"}), 11))) == []
    assert await kept(tier) == ([("", "new")], [])
    assert await tier.namespaces(session()) == []


@pytest.mark.parametrize(("birth", "cleared"), [(11, 10), (1, 10)], ids=["created anew", "cleared"])
async def test_a_session_read_before_its_end_and_its_namespace_after_it_leave_nothing_dead(
    tier: DurableTier, birth: int, cleared: int
) -> None:
    old = dirt(session(), 6, {"secret": b"6"}, birth=1)
    await put(tier, old, of_space(6, {"k": b"6"}, host=6))
    await put(tier, reborn(dirt(session(), 11), birth=birth, cleared=cleared))
    late = reborn(of_space(12, {"k": b"12"}, host=12), birth=birth, cleared=cleared)
    late = replace(late, head=replace(late.head, flushed=11))
    assert await forgotten(tier, old, late) == []
    assert await kept(tier) == ([("n", "k")], [("n", 12)])


async def test_a_namespace_that_is_twice_in_a_batch_leaves_nothing_that_was_cleared(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, birth=1), of_space(5, {"a": b"5"}, host=5))
    await put(tier, of_space(12, {"b": b"12"}, host=12, flushed=5, cleared=11))
    later = of_space(13, {"c": b"13"}, host=13, flushed=12, cleared=11)
    await put(tier, of_space(6, {"a": b"6"}, host=6, flushed=5), later)
    assert (await kept(tier))[0] == [("n", "b"), ("n", "c")]


@pytest.mark.parametrize(("life", "asked"), [(1, 0), (11, 1)], ids=["of one life", "of two lives"])
async def test_only_a_batch_of_two_lives_of_a_session_asks_for_what_the_head_says(
    tier: DurableTier, life: int, asked: int
) -> None:
    selects: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        selects.extend([statement] * statement.startswith("SELECT sessioncache_session.scope_id"))

    event.listen(tier.engine.sync_engine, "before_cursor_execute", record)
    space = of_space(12, {"n": b"12"}, host=12)
    await put(tier, dirt(session(), 6, {"k": b"6"}, birth=1), reborn(space, birth=life, cleared=life - 1))
    assert len(selects) == asked


async def test_a_namespace_that_an_earlier_life_left_is_not_listed(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, birth=1), of_space(5, {"a": b"5"}, host=5))
    assert await tier.namespaces(session()) == ["n"]
    async with tier.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE sessioncache_namespace SET cleared = 5")
    assert await tier.namespaces(session()) == []
    async with tier.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE sessioncache_namespace SET cleared = 0")
        await connection.exec_driver_sql("UPDATE sessioncache_session SET birth = 11")
    assert await tier.namespaces(session()) == []
    async with tier.engine.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM sessioncache_session")
    assert await tier.namespaces(session()) == ["n"], "nothing tells that it is dead"


async def test_the_chaos_run_finds_what_the_heads_tell_to_be_dead(tier: DurableTier, database_url: str) -> None:
    space = of_space(5, {"n": b"5"}, host=5)
    await put(tier, dirt(session(), 5, {"k": b"5"}, birth=1), space, dirt(user(), 5, {"u": b"5"}))
    await put(tier, dirt(app(), 5, {"a": b"5"}), dirt(session("other"), 5, {"k": b"5"}, birth=1))
    assert dead_rows(database_url) == []
    async with tier.engine.begin() as connection:
        for table in ("session", "user_scope", "app_scope"):
            mine = "WHERE session_id = 's'" if table == "session" else ""
            await connection.exec_driver_sql(f"UPDATE sessioncache_{table} SET cleared = 5 {mine}")
    assert sorted(one.rsplit(":", 1)[0] for one in dead_rows(database_url)) == ["app app", "session s of u", "user u"]
    async with tier.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE sessioncache_session SET birth = 6 WHERE session_id = 's'")
    assert len(dead_rows(database_url)) == 4, "with its namespace"


async def test_r14_what_is_cleared_right_behind_a_flush_leaves_sql(tier: DurableTier) -> None:
    """A clear, or a birth, at the very next revision: the clock of Redis stands still, or was set back."""
    values = {"k": b"1"}
    await put(tier, dirt(session(), 9, values, birth=1), of_space(9, values, host=9), dirt(user(), 9, values))
    assert await count_rows(tier, "state") == 3
    await put(tier, known(dirt(session(), 10, cleared=9, birth=1), 9))
    await put(tier, known(dirt(user(), 10, cleared=9), 9))
    assert await count_rows(tier, "state") == 1
    await put(tier, known(of_space(10, {}, host=10, flushed=9, cleared=9), 10))
    assert await count_rows(tier, "state") == 0
    await put(tier, dirt(session(), 19, values, birth=1), of_space(19, values, host=19))
    await put(tier, known(dirt(session(), 20, birth=20, cleared=19), 19))
    assert (await count_rows(tier, "state"), await count_rows(tier, "namespace")) == (0, 0)
