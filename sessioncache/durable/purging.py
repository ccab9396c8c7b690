"""Purging: rows leave SQL only when they are dead and past the retention of tombstones (R14).

A flush that was read longer ago than half the retention inserts nothing, so that nothing older can come back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Delete, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.reading import read_clock


async def purge(connection: AsyncConnection, most: int, *, older_than: int) -> int:
    """Remove up to `most` rows of tombstones that were flushed more than `older_than` µs ago; their number."""
    before = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=await read_clock(connection) - older_than)
    gone = await _purge_rows(connection, most, before)
    return gone + await _purge_sessions(connection, most - gone, before) if gone < most else gone


async def _purge_rows(connection: AsyncConnection, most: int, before: datetime) -> int:
    state = schema.state
    found = (
        await connection.execute(
            select(state.c.scope_id, state.c.key_id, state.c.revision)
            .where(state.c.deleted, state.c.updated_at < before)
            .order_by(state.c.scope_id, state.c.key_id)
            .limit(most)
        )
    ).all()
    if not found:
        return 0
    same = tuple_(state.c.scope_id, state.c.key_id, state.c.revision).in_([tuple(row) for row in found])
    return await _run(connection, delete(state).where(same, state.c.deleted))


async def _purge_sessions(connection: AsyncConnection, most: int, before: datetime) -> int:
    """Whole sessions that were deleted: their rows first, and the head only once none is left."""
    session, state = schema.session, schema.state
    heads = (
        await connection.execute(
            select(session.c.scope_id, session.c.revision)
            .where(session.c.deleted, session.c.flushed_at < before)
            .order_by(session.c.scope_id)
            .limit(max(1, most // 4))
            .with_for_update()
        )
    ).all()
    gone = 0
    for scope_id, revision in heads:
        keys = (
            await connection.execute(select(state.c.key_id).where(state.c.scope_id == scope_id).limit(most))
        ).scalars()
        gone += await _run(
            connection, delete(state).where(state.c.scope_id == scope_id, state.c.key_id.in_(sorted(keys.all())))
        )
        left = (await connection.execute(select(state.c.key_id).where(state.c.scope_id == scope_id).limit(1))).first()
        if left is None:
            same = (session.c.scope_id == scope_id) & (session.c.revision == revision) & session.c.deleted
            gone += await _run(connection, delete(session).where(same))
        if gone >= most:
            break
    return gone


async def _run(connection: AsyncConnection, statement: Delete) -> int:
    done: Any = await connection.execute(statement)
    return int(done.rowcount)
