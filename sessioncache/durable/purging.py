"""Purging: rows leave SQL only when they are dead and past the retention of tombstones (R14).

A flush that was read longer ago than half the retention inserts nothing, so that nothing older can come back.  The
largest revision that was removed from a bucket is recorded in the same transaction.

A pass continues where the batch before ended, since an index contains removed rows, too, until it is vacuumed.  Heads
come before rows as in a flush, and neither waits for a lock: what another transaction holds is left for a later pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, case, delete, exists, select, tuple_, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.any_of import among
from sessioncache.durable.reading import read_clock

_STATE = schema.state.c
KEY = tuple(schema.state.primary_key)
_SESSION = schema.session.c
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class PurgeCursor:
    """How far a pass has come: first single rows, then whole sessions, each in the order of their flush."""

    sessions: bool = False
    since: datetime = _EPOCH


BEGINNING = PurgeCursor()


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of one transaction."""

    rows: int
    following: PurgeCursor | None
    """Where the next one continues; None: the pass is over."""


async def purge(connection: AsyncConnection, most: int, at: PurgeCursor, *, older_than: int) -> Purged:
    """Remove up to `most` rows of tombstones that were flushed more than `older_than` µs ago."""
    before = _EPOCH + timedelta(microseconds=await read_clock(connection) - older_than)
    part = _purge_sessions if at.sessions else _purge_rows
    return await part(connection, most, at.since, before)


async def read_purged(connection: AsyncConnection, buckets: Iterable[int]) -> dict[int, int]:
    """The largest revision that purging ever removed from each bucket; buckets without any are left out."""
    table = schema.purged.c
    query = select(table.bucket, table.revision).where(among(connection, table.bucket, set(buckets)))
    return {row.bucket: row.revision for row in await connection.execute(query)}


async def _purge_rows(connection: AsyncConnection, most: int, since: datetime, before: datetime) -> Purged:
    """Tombstones of keys."""
    dead = select(*KEY).where(schema.is_deleted(schema.state), _STATE.updated_at >= since, _STATE.updated_at < before)
    gone = await delete_rows(connection, dead.order_by(_STATE.updated_at).limit(most))
    await _note(connection, {}, gone)
    over = len(gone) < most
    return Purged(len(gone), PurgeCursor(True) if over else PurgeCursor(since=max(row.updated_at for row in gone)))


async def _purge_sessions(connection: AsyncConnection, most: int, since: datetime, before: datetime) -> Purged:
    """Whole sessions that were deleted: their rows first, and a head only once none is left."""
    many = max(1, most // 4)
    dead = select(_SESSION.scope_id, _SESSION.bucket, _SESSION.flushed_at).where(
        schema.is_deleted(schema.session), _SESSION.flushed_at >= since, _SESSION.flushed_at < before
    )
    locked = dead.order_by(_SESSION.flushed_at).limit(many).with_for_update(skip_locked=True)
    found = (await connection.execute(locked)).all()
    if not found:
        return Purged(0, None)
    buckets = {row.scope_id: row.bucket for row in found}
    rows = select(*KEY).where(_STATE.scope_id.in_(buckets)).limit(most)
    gone = await delete_rows(connection, rows)
    await connection.execute(delete(schema.namespace).where(schema.namespace.c.scope_id.in_(buckets)))
    heads = await _delete_heads(connection, list(buckets))
    await _note(connection, buckets, [*gone, *heads])
    done = len(gone) + len(heads)
    if len(gone) == most:
        return Purged(done, PurgeCursor(True, since))
    return Purged(done, None if len(found) < many else PurgeCursor(True, max(row.flushed_at for row in found)))


async def delete_rows(connection: AsyncConnection, which: Select[Any]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Delete the rows that a query selects, except for those that another transaction has locked."""
    # A CTE that locks is run once: within a join, PostgreSQL might run a query with a limit again and again.
    old = which.with_for_update(skip_locked=True).cte("old")
    same = tuple_(*KEY).in_(select(*old.c))
    query = delete(schema.state).where(same).returning(_STATE.scope_id, _STATE.revision, _STATE.updated_at)
    return (await connection.execute(query)).all()


async def _delete_heads(connection: AsyncConnection, scope_ids: list[str]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Delete those of some deleted sessions that have no rows any more."""
    empty = ~exists().where(_STATE.scope_id == _SESSION.scope_id)
    query = delete(schema.session).where(_SESSION.scope_id.in_(scope_ids), _SESSION.deleted, empty)
    largest = case((_SESSION.cleared > _SESSION.revision, _SESSION.cleared), else_=_SESSION.revision)
    return (await connection.execute(query.returning(_SESSION.scope_id, largest.label("revision")))).all()


async def _note(connection: AsyncConnection, buckets: Mapping[str, int], gone: Sequence[Row[*tuple[Any, ...]]]) -> None:
    """Raise what is recorded of the buckets of scopes, in one order: other processes may be doing the same."""
    known = dict(buckets) or await _buckets(connection, {row.scope_id for row in gone})
    # Without a head the bucket is unknown: it may be any of those of which something was ever flushed.
    lost = any(row.scope_id not in known for row in gone)
    everywhere = (await connection.execute(select(schema.fence.c.bucket))).scalars().all() if lost else []
    largest: dict[int, int] = defaultdict(int)
    for row in gone:
        for bucket in [known[row.scope_id]] if row.scope_id in known else everywhere:
            largest[bucket] = max(largest[bucket], row.revision)
    if largest:
        rows = [{"bucket": bucket, "revision": revision} for bucket, revision in sorted(largest.items())]
        await connection.execute(_raising(connection), rows)


async def _buckets(connection: AsyncConnection, scope_ids: set[str]) -> dict[str, int]:
    """The buckets of scopes, by their heads; scopes without one are left out."""
    tables = (schema.session, schema.user_scope, schema.app_scope)
    heads = (select(table.c.scope_id, table.c.bucket).where(table.c.scope_id.in_(scope_ids)) for table in tables)
    return {row.scope_id: row.bucket for row in await connection.execute(union_all(*heads))}


def _raising(connection: AsyncConnection) -> Any:
    insert: Any = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(schema.purged)
    higher = insert.excluded.revision
    return insert.on_conflict_do_update(
        index_elements=["bucket"], set_={"revision": higher}, where=schema.purged.c.revision < higher
    )
