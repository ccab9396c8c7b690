"""Flushing: one transaction for a batch of dirty scopes (R6, R7, R14, R17).

The order of the steps matters:

1. The fences, under a lock and with the database's clock.  Until the commit no other incarnation can be registered, so
   nothing is ever written on behalf of one that was replaced.
2. Heads before rows.  A head's row stays locked even where the guard refuses it, so it is the lock of its scope: two
   transactions that write the same scope follow one another wholly, and never one with the newer head and the other
   with rows between.  A head that is older than what the hash knows to be flushed, or that is missing, means that the
   database has come back older than it was: nothing of that scope is written, and the result names it (R18).
3. Rows, by id.  Every transaction takes its locks in this one order, hence there is no deadlock.  What a newer head
   has cleared is left out: also where that head came in the same batch, with a session or namespace that was read
   later.
4. What each row has now, while the locks are still held.
5. Rows that are dead by the heads (a clear, a deleted session, an earlier life) are deleted, unless the heads that
   were there before said so already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import bulk, schema
from sessioncache.durable.bulk import BulkTable, HeadTable, Id, Row
from sessioncache.durable.clearing import Cleared, drop_cleared, read_told
from sessioncache.durable.errors import RefusedDataError, StaleReadingError
from sessioncache.durable.fence import lock_fences
from sessioncache.durable.heads import head_row, space_row
from sessioncache.durable.purging import read_purged
from sessioncache.primitives.entries import Committed, Dirt, Entry
from sessioncache.primitives.scopes import ScopeKind, key_id
from sessioncache.primitives.timestamps import date_of, json_of

_ALL = "\0"
"""In place of the name of a namespace, none of which holds a NUL."""


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The result of a flush."""

    committed: list[Committed]
    fenced: set[int] = field(default_factory=set)
    """Buckets whose scopes were left out, since their fence names another incarnation or there is none."""
    forgotten: list[Dirt] = field(default_factory=list)
    """Scopes that were left out, since the database has less of them than was flushed: it came back older (R18)."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows of a batch: unique (the newest stays), sorted by id."""

    heads: list[tuple[HeadTable, list[Row]]]
    """By table, in the order of writing."""
    entries: list[Row]


@dataclass(frozen=True, slots=True)
class _Heads:
    """What became of the heads of a batch."""

    found: dict[Id, int] = field(default_factory=dict)
    """The revision of each now."""
    cleared: dict[Id, int] = field(default_factory=dict)
    """Scope -> the revision up to which its rows are dead; with a name, that of the namespace; with `_ALL`, of each of
    them."""
    forgotten: set[Id] = field(default_factory=set)
    """Scopes, and namespaces, of which the database has less than was flushed."""
    mixed: set[Id] = field(default_factory=set)
    """Scopes, and namespaces, that were read both before and after a clear, a delete or a birth."""

    def knows(self, scope_id: str, space: str) -> bool:
        """Whether the database has what was flushed of a scope, or namespace, before."""
        return (scope_id,) not in self.forgotten and (scope_id, space) not in self.forgotten

    def is_over(self, dirt: Dirt) -> bool:
        """Whether a namespace was read in a life of its session that has ended."""
        return dirt.head.birth <= self.cleared.get((dirt.rows_id, _ALL), -1)

    def takes(self, row: Row) -> bool:
        """Whether the row of an entry is written."""
        scope_id, space = row[0], row[2]
        return self.knows(scope_id, space) and bool(row[bulk.STATE.revision_at] > self.dead(scope_id, space))

    def dead(self, scope_id: str, space: str) -> int:
        """The revision up to which the rows of a scope, or namespace, are dead by a newer head."""
        names = [(scope_id, space), (scope_id, _ALL)] if space else [(scope_id,)]
        return max(self.cleared.get(name, 0) for name in names)


def prepare(batch: Sequence[Dirt]) -> Prepared:
    """The rows of a batch.  RefusedDataError or UnicodeError for what no database accepts."""
    heads: dict[HeadTable, list[Row]] = {table: [] for table in (*bulk.HEADS.values(), bulk.NAMESPACES)}
    for dirt in batch:
        heads[bulk.HEADS[dirt.kind]].append(head_row(dirt))
        if dirt.holder:
            heads[bulk.NAMESPACES].append(space_row(dirt))
    entries = (_entry_row(dirt, entry) for dirt in batch for entry in dirt.entries)
    return Prepared(
        [(table, _unique_heads(table, rows)) for table, rows in heads.items() if rows], _unique(bulk.STATE, entries)
    )


def try_prepare(batch: Sequence[Dirt]) -> Prepared | None:
    """As `prepare`, before any lock is taken; None where it fails: only the fence shows whether that matters."""
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
    cleared = await _read_news(connection, ours)
    heads = _Heads(mixed=_mixed(ours))
    for table, prepared_rows in prepared.heads:
        # The records of namespaces of a life that is over were deleted with its tombstone.
        is_doubtful = table is bulk.NAMESPACES and heads.cleared
        rows = _living_spaces(ours, heads) if is_doubtful else prepared_rows
        now = await _write_heads(connection, table, rows, heads)
        await _look_at_cleared(connection, table, rows, now, heads)
        heads.found.update(now)
    known = [dirt for dirt in ours if heads.knows(dirt.rows_id, dirt.namespace)]
    entries = prepared.entries
    if heads.cleared or heads.forgotten:
        entries = [row for row in entries if heads.takes(row)]
    found = await _write(connection, bulk.STATE, entries) if entries else {}
    await drop_cleared(connection, [one for one in cleared if heads.knows(one.scope_id, one.namespace or "")])
    committed = [_committed(dirt, heads.found | found) for dirt in known]
    return FlushResult(committed, fenced, [dirt for dirt in ours if dirt not in known])


async def _write(connection: AsyncConnection, table: BulkTable, rows: list[Row]) -> dict[Id, int]:
    """Write one table's rows; the revision of each now.  Where all were written, they need not be read."""
    taken = await table.upsert(connection, rows)
    if taken != len(rows):
        return await table.revisions(connection, [table.id_of(row) for row in rows])
    length, revision = table.key_length, table.revision_at
    return {row[:length]: row[revision] for row in rows}


async def _write_heads(connection: AsyncConnection, table: HeadTable, rows: list[Row], heads: _Heads) -> dict[Id, int]:
    """Write the heads of one table; those that the database has older than was flushed are left out."""
    if not rows or await table.upsert(connection, rows) == len(rows):
        return {table.id_of(row): row[table.revision_at] for row in rows}
    ids = [table.id_of(row) for row in rows]
    through = await table.flushed(connection, ids)
    lost = [row for row in rows if row[-1] > through.get(table.id_of(row), 0)]
    purged = await _purged(connection, table, [row for row in lost if table.id_of(row) not in through])
    if purged:
        await table.upsert(connection, [(*row[:-1], 0) for row in purged])
    heads.forgotten.update(table.id_of(row) for row in lost if row not in purged)
    newer = {table.id_of(row): row[-2] for row in rows if table.id_of(row) in through and row not in lost}
    await table.raise_flushed(
        connection, {name: revision for name, revision in newer.items() if revision > through[name]}
    )
    if table is bulk.NAMESPACES:
        await _look_at_spaces(connection, ids, heads)
    return await table.revisions(connection, ids)


async def _purged(connection: AsyncConnection, table: HeadTable, rows: list[Row]) -> list[Row]:
    """Those of some missing heads that are of deleted sessions, and were purged."""
    deleted = [row for row in rows if table is bulk.HEADS[ScopeKind.SESSION] and row[table.columns.index("deleted")]]
    if not deleted:
        return []
    bucket, cleared = table.columns.index("bucket"), table.columns.index("cleared")
    purged = await read_purged(connection, {row[bucket] for row in deleted})
    return [row for row in deleted if row[cleared] <= purged.get(row[bucket], 0)]


async def _look_at_cleared(
    connection: AsyncConnection, table: HeadTable, rows: list[Row], now: dict[Id, int], heads: _Heads
) -> None:
    """The revisions up to which rows are dead, for scopes with a newer head here, deleted ones, and mixed ones."""
    mixed = [name for name in map(table.id_of, rows) if name in heads.mixed] if heads.mixed else []
    if table is bulk.NAMESPACES:
        if mixed:
            await _look_at_spaces(connection, mixed, heads)
        return
    newer = [row for row in rows if now.get(table.id_of(row), 0) > row[table.revision_at]]
    deleted = table.columns.index("deleted")
    doubtful = [row[0] for row in rows if row[deleted] and (row[0],) not in heads.forgotten]
    doubtful += [row[0] for row in newer]
    doubtful += [scope_id for (scope_id,) in mixed]
    if not doubtful:
        return
    head = table.table.c
    query = select(head.scope_id, head.birth, head.cleared, head.deleted).where(head.scope_id.in_(doubtful))
    for scope_id, birth, cleared, is_deleted in (await connection.execute(query)).all():
        heads.cleared[scope_id,] = cleared
        heads.cleared[scope_id, _ALL] = cleared if is_deleted else birth - 1


async def _look_at_spaces(connection: AsyncConnection, names: list[Id], heads: _Heads) -> None:
    """The revisions up to which rows are dead, for namespaces that may have been cleared since they were read."""
    space = schema.namespace.c
    query = select(space.scope_id, space.namespace, space.cleared)
    for scope_id, name, cleared in await connection.execute(
        query.where(tuple_(space.scope_id, space.namespace).in_(names))
    ):
        heads.cleared[scope_id, name] = cleared


def _living_spaces(ours: list[Dirt], heads: _Heads) -> list[Row]:
    """The records of the namespaces whose session still lives as it did when they were read."""
    rows = (space_row(dirt) for dirt in ours if dirt.holder and not heads.is_over(dirt))
    return _unique_heads(bulk.NAMESPACES, rows)


def _mixed(ours: list[Dirt]) -> set[Id]:
    """Scopes, and namespaces, of which a batch contains parts read before and after a clear, a delete or a birth.

    A session and its namespaces are read one after the other.  The newest of their heads is written, and the others
    were read under an older one.
    """
    if len({dirt.rows_id for dirt in ours}) == len(ours):
        return set()
    known: dict[Id, tuple[int, ...]] = {}
    found: set[Id] = set()
    for dirt in ours:
        head = dirt.head
        told: list[tuple[Id, tuple[int, ...]]] = [((dirt.rows_id,), (head.birth, head.cleared, head.deleted))]
        if dirt.holder:
            told.append(((dirt.rows_id, dirt.namespace), (dirt.namespace_cleared,)))
        found.update(name for name, life in told if known.setdefault(name, life) != life)
    return found


async def _read_news(connection: AsyncConnection, ours: list[Dirt]) -> list[Cleared]:
    """What is dead by the heads of the scopes, and not yet by those in the database."""
    news: list[Cleared] = []
    for table in dict.fromkeys(schema.HEADS.values()):
        scopes = [dirt for dirt in ours if schema.HEADS[dirt.kind] is table]
        dead = list(dict.fromkeys(one for dirt in scopes for one in _cleared_since(dirt)))
        told = await read_told(connection, table, dead) if dead else set()
        news += [one for one in dead if one not in told]
    return news


def _cleared_since(dirt: Dirt) -> list[Cleared]:
    """What was cleared of a scope since the last flush that the hash knows of; for a session also its earlier lives.

    For a namespace also what its session's head says: that head is written with it.  A clear and a birth have the
    revision after the one up to which rows are dead: what was flushed up to there, and no further, was flushed before.
    """
    head, scope, found = dirt.head, dirt.rows_id, []
    life = 0
    if dirt.kind is ScopeKind.SESSION or dirt.holder:
        life = head.cleared if head.deleted else head.birth - 1
        if head.flushed <= life:
            found.append(Cleared(scope, None, life))
    if head.flushed <= head.cleared and head.cleared > life:
        found.append(Cleared(scope, "", head.cleared))
    if dirt.holder and 0 < dirt.namespace_cleared >= dirt.namespace_flushed:
        found.append(Cleared(scope, dirt.namespace, dirt.namespace_cleared))
    return found


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


def _unique_heads(table: HeadTable, rows: Iterable[Row]) -> list[Row]:
    """As `_unique`; a session and its namespaces contribute a part of one head each."""
    newest: dict[Id, Row] = {}
    for row in rows:
        known = newest.setdefault(table.id_of(row), row)
        if known is not row:
            first = known if known[table.revision_at] >= row[table.revision_at] else row
            newest[table.id_of(row)] = (*first[:-2], max(known[-2], row[-2]), max(known[-1], row[-1]))
    return [newest[name] for name in sorted(newest)]
