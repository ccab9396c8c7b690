"""Flushing: one transaction for a batch of dirt (R6, R7, R14, R17).

The order of the steps matters:

1. The fences, under a lock and with the database's clock.  Until the commit no other incarnation can be registered, so
   nothing is ever written on behalf of one that was replaced.
2. Heads before rows.  A head's row stays locked even where the guard refuses it, so it is the lock of its scope: two
   transactions that bear the same scope follow one another wholly, and never one with the newer head and the other
   with rows between.
3. Rows, by id.  Every transaction takes its locks in this one order, hence none waits in a circle.
4. What each row has now, while the locks are still held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnClause, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import bulk, schema
from sessioncache.durable.bulk import BulkTable, Id, Row
from sessioncache.durable.errors import RefusedDataError, StaleReadingError
from sessioncache.durable.heads import head_row
from sessioncache.entries import Committed, Dirt, Entry
from sessioncache.scopes import key_id


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush did."""

    committed: list[Committed]
    fenced: set[int] = field(default_factory=set)
    """Buckets of dirt that was left out, since their fence names another incarnation or there is none."""


Prepared = list[tuple[BulkTable, list[Row]]]


def prepare(batch: Sequence[Dirt]) -> Prepared:
    """The rows of a batch by table, in the order of writing: unique (the newest stays), sorted by id.

    Raises RefusedDataError or UnicodeError for what no database takes.
    """
    rows = [
        (bulk.HEADS[kind], _unique(bulk.HEADS[kind], map(head_row, (dirt for dirt in batch if dirt.kind is kind))))
        for kind in bulk.HEADS
    ]
    entries = (_entry_row(dirt.scope_id, entry) for dirt in batch for entry in dirt.entries)
    return [(table, found) for table, found in [*rows, (bulk.STATE, _unique(bulk.STATE, entries))] if found]


def try_prepare(batch: Sequence[Dirt]) -> Prepared | None:
    """As `prepare`, before any lock is taken; None where it fails: only the fence tells whether that matters."""
    try:
        return prepare(batch)
    except (RefusedDataError, UnicodeError):
        return None


async def flush(
    connection: AsyncConnection, batch: Sequence[Dirt], prepared: Prepared | None, *, read_after: int, max_age: int
) -> FlushResult:
    """Write a batch in the caller's transaction.  StaleReadingError where it was read over `max_age` µs ago."""
    fences, clock = await _lock_fences(connection, {dirt.bucket for dirt in batch})
    ours = [dirt for dirt in batch if fences.get(dirt.bucket) == dirt.incarnation]
    fenced = {dirt.bucket for dirt in batch if fences.get(dirt.bucket) != dirt.incarnation}
    if not ours:
        return FlushResult([], fenced)
    if clock - read_after > max_age:
        raise StaleReadingError("the batch was read longer ago than half the retention of tombstones")
    if fenced or prepared is None:
        prepared = prepare(ours)
    found: dict[Id, int] = {}
    for table, rows in prepared:
        found.update(await _write(connection, table, rows))
    return FlushResult([_committed(dirt, found) for dirt in ours], fenced)


async def _lock_fences(connection: AsyncConnection, buckets: set[int]) -> tuple[dict[int, str], int]:
    """The fences, kept as they are until the end of the transaction, and the database's clock."""
    fence = schema.fence.c
    clock: ColumnClause[int] = literal_column(bulk.CLOCK[connection.dialect.name])
    query = select(fence.bucket, fence.incarnation, clock).where(fence.bucket.in_(sorted(buckets)))
    rows = (await connection.execute(query.order_by(fence.bucket).with_for_update(read=True))).all()
    return {row[0]: row[1] for row in rows}, max((row[2] for row in rows), default=0)


async def _write(connection: AsyncConnection, table: BulkTable, rows: list[Row]) -> dict[Id, int]:
    """Write one table's rows; the revision of each now.  Where all were taken, no second look is needed."""
    taken = await table.upsert(connection, rows)
    if taken != len(rows):
        return await table.revisions(connection, [table.id_of(row) for row in rows])
    return {table.id_of(row): row[table.revision_at] for row in rows}


def _committed(dirt: Dirt, found: dict[Id, int]) -> Committed:
    scope = dirt.scope_id
    return Committed(dirt, found.get((scope,)), [found.get((scope, key_id("", entry.key))) for entry in dirt.entries])


def _entry_row(scope_id: str, entry: Entry) -> Row:
    value = entry.text.decode()
    if "\0" in value or "\0" in entry.key:
        raise RefusedDataError("the database refuses the data (NUL)")
    return scope_id, key_id("", entry.key), "", entry.key, value, entry.revision, not entry.text


def _unique(table: BulkTable, rows: Iterable[Row]) -> list[Row]:
    revision = table.revision_at
    newest: dict[Id, Row] = {}
    for row in rows:
        name = table.id_of(row)
        if name not in newest or newest[name][revision] < row[revision]:
            newest[name] = row
    return [newest[name] for name in sorted(newest)]
