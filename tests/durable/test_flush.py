"""Flushing: what one transaction writes, refuses, and reports."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import bulk, flushing, statement_sizes
from sessioncache.durable.errors import RefusedDataError, StaleReadingError
from sessioncache.durable.messages import Swap
from sessioncache.durable.tier import DurableTier
from sessioncache.durable.transactions import writing
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.primitives.entries import Dirt
from tests.durable_helpers import INCARNATION, app, count_rows, dirt, open_tier, put, session, user, values_of
from tests.waiting import stretched
from tests.worker.poison import refuse_poison

SECRET = "correct-horse-battery"


@pytest.fixture
async def tier(database_url: str) -> AsyncIterator[DurableTier]:
    async with open_tier(database_url) as made:
        yield made


@pytest.fixture
async def postgresql(postgresql_url: str) -> AsyncIterator[DurableTier]:
    async with open_tier(postgresql_url) as made:
        yield made


@pytest.mark.parametrize(
    "value",
    [
        b'"\\ud800 \\u0000"',
        b"1180591620717411303424",
        b"1.0",
        b"-0.0",
        b"0.30000000000000004",
        '{"b":"é😀\\t\\\\","a":[null,true]}'.encode(),
        b'"tab\there \\" and a \\\\N"',
        b'"' + b"x" * 1_000_000 + b'"',
    ],
)
async def test_values_come_back_byte_identical(tier: DurableTier, value: bytes) -> None:
    await put(tier, dirt(session(), 5, {"k": value, "é\t\\N": value}))
    assert await values_of(tier, session()) == {"k": value, "é\t\\N": value}


async def test_all_kinds_of_scopes_go_in_one_batch(tier: DurableTier) -> None:
    batch = [dirt(ref, 7, {"k": b"1"}) for ref in (app(), session(), user(), session("t"))]
    assert await put(tier, *batch) == [(7, [7])] * 4
    for ref in (app(), session(), user(), session("t")):
        assert await values_of(tier, ref) == {"k": b"1"}


async def test_older_is_refused_equal_is_a_replay_greater_is_reported(tier: DurableTier) -> None:
    newer = dirt(session(), 10, {"a": b'"new"', "b": b'"new"'})
    assert await put(tier, newer) == [(10, [10, 10])]
    assert await put(tier, newer) == [(10, [10, 10])]
    assert await put(tier, dirt(session(), 10, {"b": b'"forged"'})) == [(10, [10])]
    assert await put(tier, dirt(session(), 9, {"a": b'"old"', "c": b'"old"'})) == [(10, [10, 9])]
    assert await put(tier, dirt(session(), 11, {"a": b'"newest"'})) == [(11, [11])]
    assert await values_of(tier, session()) == {"a": b'"newest"', "b": b'"new"', "c": b'"old"'}


async def test_each_dirt_learns_the_revision_of_its_own_rows(tier: DurableTier) -> None:
    await put(tier, dirt(session("s1"), 20, {"a": b"20"}))
    result = await put(tier, *(dirt(session(f"s{i}"), 10, {"a": b"10", "b": b"10"}) for i in range(4)))
    assert result == [(10, [10, 10]), (20, [20, 10]), (10, [10, 10]), (10, [10, 10])]


async def test_duplicates_collapse_to_the_highest_revision(tier: DurableTier) -> None:
    first, second = dirt(session(), 5, {"a": b"5"}), dirt(session(), 6, {"a": b"6"})
    twice = Dirt(
        first.kind, first.scope_id, first.bucket, INCARNATION, first.head, b"", [*second.entries, *first.entries]
    )
    assert await put(tier, second, twice, first) == [(6, [6]), (6, [6, 6]), (6, [6])]
    assert await values_of(tier, session()) == {"a": b"6"}


async def test_a_deletion_is_a_tombstone_and_the_head_alone_can_be_flushed(tier: DurableTier) -> None:
    await put(tier, dirt(session(), 5, {"a": b"1", "b": b"2"}))
    await put(tier, dirt(session(), 6, {"a": b""}))
    assert await put(tier, dirt(session(), 7, title="renamed")) == [(7, [])]
    assert await values_of(tier, session()) == {"b": b"2"}
    assert await count_rows(tier, "state") == 2


async def test_an_empty_batch_needs_no_database() -> None:
    tier = DurableTier.connect("postgresql://127.0.0.1:1/nowhere")
    assert (await tier.flush([], read_after=0)).committed == []


async def test_what_the_fence_does_not_name_is_left_out(tier: DurableTier) -> None:
    ours, strange = session("s", "u1"), session("s", "u2")
    assert ours.bucket != strange.bucket
    batch = [dirt(ours, 5, {"k": b"1"}), dirt(strange, 5, {"k": b"1"}, incarnation="other")]
    result = await tier.flush(batch, read_after=await tier.clock())
    assert [committed.dirt.scope_id for committed in result.committed] == [ours.id]
    assert result.fenced == {strange.bucket}
    assert await values_of(tier, strange) is None


async def test_nothing_is_written_without_a_fence(database_url: str) -> None:
    async with open_tier(database_url) as tier:
        async with tier.engine.begin() as connection:
            await connection.execute(text("DELETE FROM sessioncache_fence"))
        result = await tier.flush([dirt(session(), 5, {"k": b"1"})], read_after=await tier.clock())
        assert (result.committed, result.fenced) == ([], {session().bucket})
        assert await count_rows(tier, "state") == 0


async def test_the_fence_cannot_move_before_the_flush_commits(tier: DurableTier) -> None:
    bucket, batch = session().bucket, [dirt(session(), 5, {"k": b"1"})]
    async with writing(tier.engine, 7) as connection:
        await flushing.flush(connection, batch, None, read_after=await tier.clock(), max_age=10**12)
        swap = asyncio.create_task(tier.swap_fences({bucket: (INCARNATION, "second")}))
        done, _ = await asyncio.wait([swap], timeout=0.3)
        assert not done
    assert await swap == {bucket: Swap.SWAPPED}
    assert (await tier.flush([dirt(session(), 6)], read_after=await tier.clock())).fenced == {bucket}


async def test_dirt_read_longer_ago_than_half_the_retention_is_not_written(database_url: str) -> None:
    async with open_tier(database_url, retention=100) as tier:
        now = await tier.clock()
        with pytest.raises(StaleReadingError):
            await tier.flush([dirt(session(), 5, {"k": b"1"})], read_after=now - 51_000_000)
        assert await count_rows(tier, "state") == await count_rows(tier, "session") == 0
        await tier.flush([dirt(session(), 5, {"k": b"1"})], read_after=now - 45_000_000)
        assert await values_of(tier, session()) == {"k": b"1"}


@pytest.mark.parametrize(
    "poison",
    [
        dirt(session("bad"), 5, {"k": b'"\0' + SECRET.encode() + b'"'}),
        dirt(session("bad"), 5, {"k\0" + SECRET: b"1"}),
        dirt(session("bad"), 5, {"k": b"\xff" + SECRET.encode()}),
        dirt(session("bad"), 5, title="\0" + SECRET),
        dirt(session("bad"), 5, title="\ud800" + SECRET),
        dirt(session("bad"), 5, message_count=2**70),
    ],
    ids=["nul in a value", "nul in a key", "no utf-8", "nul in a title", "surrogate in a title", "huge number"],
)
async def test_refused_data_is_told_apart_and_nothing_is_written(tier: DurableTier, poison: Dirt) -> None:
    with pytest.raises(RefusedDataError) as caught:
        await put(tier, dirt(session("good"), 5, {"k": b"1"}), poison)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for table in ("state", "session"):
        assert await count_rows(tier, table) == 0


async def test_a_value_that_is_refused_makes_no_statement_smaller(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_sizes, "_LONG", 60.0)
    async with open_tier(postgresql_url) as tier:
        refuse_poison(postgresql_url)
        with pytest.raises(RefusedDataError):
            await put(tier, dirt(session(), 5, {"poison": b"1"}))
        async with tier.engine.connect() as connection:
            assert statement_sizes.pieces_of(connection).rows == statement_sizes.StatementSizes().rows


async def test_poison_of_a_replaced_incarnation_is_only_fenced_off(tier: DurableTier) -> None:
    poison = dirt(session(), 5, {"k": b"\0"}, incarnation="other")
    assert (await tier.flush([poison], read_after=await tier.clock())).fenced == {session().bucket}


async def test_a_held_row_lock_ends_as_unavailable(postgresql_url: str) -> None:
    async with open_tier(postgresql_url, lock_timeout=0.4) as tier:
        await put(tier, dirt(session(), 5, {"k": b"1"}))
        async with tier.engine.begin() as holder:
            await holder.execute(text("SELECT 1 FROM sessioncache_state FOR UPDATE"))
            begun = time.monotonic()
            with pytest.raises(DurableTierUnavailableError, match=r"hold a lock .*55P03"):
                await put(tier, dirt(session(), 6, {"k": b"2"}))
            assert 0.25 < time.monotonic() - begun < stretched(3)
        assert await put(tier, dirt(session(), 6, {"k": b"2"})) == [(6, [6])]


async def test_a_held_sqlite_lock_ends_as_unavailable(sqlite_url: str) -> None:
    async with open_tier(sqlite_url, lock_timeout=0.4) as tier:
        holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        with pytest.raises(DurableTierUnavailableError):
            await put(tier, dirt(session(), 6, {"k": b"2"}))
        assert 0.3 < time.monotonic() - begun < stretched(3)
        holder.close()
        assert await put(tier, dirt(session(), 6, {"k": b"2"})) == [(6, [6])]


async def test_a_stopped_transaction_loses_its_locks_in_time(postgresql: DurableTier) -> None:
    stopped, over = asyncio.Event(), asyncio.Event()

    async def worker_that_stops() -> None:
        async with writing(postgresql.engine, 0.5) as connection:
            batch = [dirt(session(), 5, {"k": b'"stopped"'})]
            await flushing.flush(connection, batch, None, read_after=await postgresql.clock(), max_age=10**12)
            stopped.set()
            await over.wait()

    begun = time.monotonic()
    first = asyncio.create_task(worker_that_stops())
    await stopped.wait()
    assert await put(postgresql, dirt(session(), 6, {"k": b'"second"'})) == [(6, [6])]
    assert time.monotonic() - begun > 0.2, "the first one's time was not over yet"
    over.set()
    with pytest.raises(DurableTierUnavailableError):
        await first
    assert await values_of(postgresql, session()) == {"k": b'"second"'}


async def test_rows_are_prepared_sorted_and_unique() -> None:
    batch = [dirt(session(f"s{i % 20}"), 5 + i, {f"k{j}": b"1" for j in range(5)}) for i in range(40)]
    random.Random(1).shuffle(batch)
    prepared = flushing.prepare(batch)
    ((_, heads),), rows = prepared.heads, prepared.entries
    assert [row[0] for row in heads] == sorted({d.scope_id for d in batch})
    assert [row[:2] for row in rows] == sorted({row[:2] for row in rows})
    assert {row[5] for row in rows} == set(range(25, 45))


async def test_batches_in_opposite_order_do_not_deadlock(postgresql: DurableTier) -> None:
    scopes = [session(f"s{i}") for i in range(150)] + [user(f"u{i}") for i in range(50)]
    keys = [f"k{i}" for i in range(4)]

    async def flusher(backwards: bool) -> None:
        for round_ in range(12):
            batch = [dirt(ref, 100 + round_ * 2 + backwards, dict.fromkeys(keys, b"1")) for ref in scopes]
            await put(postgresql, *(reversed(batch) if backwards else batch))

    await asyncio.gather(flusher(False), flusher(True), flusher(False))
    assert await values_of(postgresql, session("s0")) == dict.fromkeys(keys, b"1")


async def test_of_two_concurrent_flushes_the_newer_stays(tier: DurableTier) -> None:
    for round_ in range(10):
        low, high = 10 + round_ * 2, 11 + round_ * 2
        older, newer = dirt(session(), low, {"k": b'"old"'}), dirt(session(), high, {"k": b'"new"'})
        results = await asyncio.gather(put(tier, older), put(tier, newer))
        assert results[1] == [(high, [high])]
        assert results[0] in ([(low, [low])], [(high, [high])])
        assert await values_of(tier, session()) == {"k": b'"new"'}


async def test_a_transaction_that_fails_half_way_writes_nothing(tier: DurableTier) -> None:
    batch = [dirt(session(), 5, {"k": b"1"})]
    with pytest.raises(asyncio.CancelledError):
        await _flush_and_cancel(tier, batch)
    assert await values_of(tier, session()) is None


async def _flush_and_cancel(tier: DurableTier, batch: list[Dirt]) -> None:
    async with writing(tier.engine, 7) as connection:
        await flushing.flush(connection, batch, None, read_after=await tier.clock(), max_age=10**12)
        raise asyncio.CancelledError


async def test_a_big_scope_is_one_transaction(tier: DurableTier) -> None:
    values = {f"key {i}": str(i).encode() for i in range(20_000)}
    await put(tier, dirt(session(), 5, values))
    (committed,) = await put(tier, dirt(session(), 5, values))
    assert committed == (5, [5] * 20_000)
    assert await values_of(tier, session()) == values


def test_an_entry_without_text_is_a_deletion() -> None:
    (row,) = flushing.prepare([dirt(session(), 5, {"k": b""})]).entries
    assert row[4:] == ("", 5, True, None)


async def test_heads_are_written_before_rows(tier: DurableTier, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    upsert = bulk.BulkTable.upsert

    async def record(table: bulk.BulkTable, connection: AsyncConnection, rows: Sequence[bulk.Row]) -> int:
        written.append(table.table.name.removeprefix("sessioncache_"))
        return await upsert(table, connection, rows)

    monkeypatch.setattr(bulk.BulkTable, "upsert", record)
    await put(tier, *(dirt(ref, 5, {"k": b"1"}) for ref in (app(), session(), user())))
    assert written == ["session", "user_scope", "app_scope", "state"]


def test_heads_come_in_one_order_of_tables() -> None:
    batch = [dirt(ref, 5, {"k": b"1"}) for ref in (app(), session(), user())]
    for order in (batch, batch[::-1]):
        names = [table.table.name for table, _ in flushing.prepare(order).heads]
        assert names == [f"sessioncache_{name}" for name in ("session", "user_scope", "app_scope")]
