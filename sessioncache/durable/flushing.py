"""Flushing: one transaction for a batch of dirt (R6, R7, R14, R17).

The order of the steps matters:

1. The fences, under a lock and with the database's clock.  Until the commit no other incarnation can be registered, so
   nothing is ever written on behalf of one that was replaced.
2. Heads before rows.  A head's row stays locked even where the guard refuses it, so it is the lock of its scope: two
   transactions that bear the same scope follow one another wholly, and never one with the newer head and the other
   with rows between.
3. Rows, by id.  Every transaction takes its locks in this one order, hence none waits in a circle.  What a newer head
   has cleared is left out, and the rows of a session that is deleted go: they are dead wherever they lie.
4. What each row has now, while the locks are still held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.dates import date_of, json_of
from sessioncache.durable import bulk, schema
from sessioncache.durable.bulk import BulkTable, Id, Row
from sessioncache.durable.errors import RefusedDataError, StaleReadingError
from sessioncache.durable.fence import lock_fences
from sessioncache.durable.heads import head_row
from sessioncache.entries import Committed, Dirt, Entry
from sessioncache.scopes import key_id


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush did."""

    committed: list[Committed]
    fenced: set[int] = field(default_factory=set)
    """Buckets of dirt that was left out, since their fence names another incarnation or there is none."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows of a batch: unique (the newest stays), sorted by id."""

    heads: list[tuple[BulkTable, list[Row]]]
    """By table, in the order of writing."""
    entries: list[Row]


def prepare(batch: Sequence[Dirt]) -> Prepared:
    """The rows of a batch.  RefusedDataError or UnicodeError for what no database takes."""
    heads: dict[BulkTable, list[Row]] = {table: [] for table in bulk.HEADS.values()}
    for dirt in batch:
        heads[bulk.HEADS[dirt.kind]].append(head_row(dirt))
    entries = (_entry_row(dirt, entry) for dirt in batch for entry in dirt.entries)
    return Prepared(
        [(table, _unique(table, rows)) for table, rows in heads.items() if rows], _unique(bulk.STATE, entries)
    )


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
    fences, clock = await lock_fences(connection, {dirt.bucket for dirt in batch})
    ours = [dirt for dirt in batch if fences.get(dirt.bucket) == dirt.incarnation]
    fenced = {dirt.bucket for dirt in batch if fences.get(dirt.bucket) != dirt.incarnation}
    if not ours:
        return FlushResult([], fenced)
    if clock - read_after > max_age:
        raise StaleReadingError("the batch was read longer ago than half the retention of tombstones")
    if fenced or prepared is None:
        prepared = prepare(ours)
    found: dict[Id, int] = {}
    cleared: dict[str, int] = {}
    for table, rows in prepared.heads:
        now = await _write(connection, table, rows)
        cleared |= await _cleared(connection, table, rows, now)
        found |= now
    entries = [row for row in prepared.entries if row[bulk.STATE.revision_at] > cleared.get(row[0], 0)]
    if entries:
        found |= await _write(connection, bulk.STATE, entries)
    return FlushResult([_committed(dirt, found) for dirt in ours], fenced)


async def _write(connection: AsyncConnection, table: BulkTable, rows: list[Row]) -> dict[Id, int]:
    """Write one table's rows; the revision of each now.  Where all were taken, no second look is needed."""
    taken = await table.upsert(connection, rows)
    if taken != len(rows):
        return await table.revisions(connection, [table.id_of(row) for row in rows])
    length, revision = table.key_length, table.revision_at
    return {row[:length]: row[revision] for row in rows}


async def _cleared(
    connection: AsyncConnection, table: BulkTable, rows: list[Row], now: dict[Id, int]
) -> dict[str, int]:
    """Up to where rows are dead, of scopes whose head here is newer, or that are deleted now; the latter's rows go."""
    revision, deleted = table.revision_at, table.columns.index("deleted")
    doubtful = [row[0] for row in rows if row[deleted] or now.get(table.id_of(row), 0) > row[revision]]
    if not doubtful:
        return {}
    head, state = table.table.c, schema.state
    query = select(head.scope_id, head.cleared, head.deleted).where(head.scope_id.in_(doubtful))
    heads = (await connection.execute(query)).all()
    for scope_id, cleared, is_deleted in heads:
        if is_deleted:
            dead = (state.c.scope_id == scope_id) & (state.c.revision <= cleared)
            await connection.execute(delete(state).where(dead))
    return {scope_id: cleared for scope_id, cleared, _ in heads}


def _committed(dirt: Dirt, found: dict[Id, int]) -> Committed:
    scope, space = dirt.rows_id, dirt.namespace
    return Committed(
        dirt, found.get((scope,)), [found.get((scope, key_id(space, entry.key))) for entry in dirt.entries]
    )


def _entry_row(dirt: Dirt, entry: Entry) -> Row:
    value, space = json_of(entry.text).decode(), dirt.namespace
    if "\0" in value or "\0" in entry.key or "\0" in space:
        raise RefusedDataError("the database refuses the data (NUL)")
    name = (dirt.rows_id, key_id(space, entry.key), space, entry.key)
    return *name, value, entry.revision, not entry.text, date_of(entry.text)


def _unique(table: BulkTable, rows: Iterable[Row]) -> list[Row]:
    revision = table.revision_at
    newest: dict[Id, Row] = {}
    for row in rows:
        name = row[: table.key_length]
        known = newest.setdefault(name, row)
        if known[revision] < row[revision]:
            newest[name] = row
    return [newest[name] for name in sorted(newest)]
