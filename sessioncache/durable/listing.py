"""Lists of living sessions, each served by an index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import bulk, schema
from sessioncache.durable.heads import head_of
from sessioncache.primitives.cursors import Order, Owner, Position
from sessioncache.primitives.entries import StoredHead
from sessioncache.primitives.scopes import ScopeKind

_SESSION = schema.session.c
_EPOCH = datetime.fromtimestamp(0, UTC)


def sessions_query(owner: Owner, order: Order, after: Position | None, limit: int | None) -> Select[Any]:
    """The living sessions of an owner that follow a position (None: from the beginning), newest first."""
    instant = _SESSION.updated if order == "updated" else _SESSION.birth
    found = select(schema.session).where(*_owned(owner), ~_SESSION.deleted)
    if after is not None:
        # The first condition follows from the second, but lets the database use the index.
        found = found.where(instant <= after.instant, _follows(instant, after))
    return found.order_by(instant.desc(), _SESSION.session_id, _SESSION.scope_id).limit(limit)


def _owned(owner: Owner) -> list[ColumnElement[bool]]:
    if owner.kind == "user":
        return [_SESSION.user_scope_id == owner.id]
    if owner.kind == "app":
        return [_SESSION.app_scope_id == owner.id]
    of_org = [_SESSION.org == owner.org]
    return of_org if owner.kind == "org" else [*of_org, _SESSION.user_id == owner.user]


def _follows(instant: ColumnElement[int], after: Position) -> ColumnElement[bool]:
    same_id = and_(_SESSION.session_id == after.session, _SESSION.scope_id > after.scope_id)
    return or_(instant < after.instant, _SESSION.session_id > after.session, same_id)


def bare_query(bare_id: str, app: str | None) -> Select[Any]:
    """The living sessions of one org (of one app, if given) that have a session id, by app and user."""
    found = select(schema.session).where(_SESSION.bare_id == bare_id, ~_SESSION.deleted)
    if app is not None:
        found = found.where(_SESSION.app == app)
    return found.order_by(_SESSION.app, _SESSION.user_id)


def unused_query(app_scope_id: str, before: int, after: tuple[int, str], limit: int, noted: int) -> Select[Any]:
    """The living sessions of an app last updated at or before `before`, oldest first, after (updated, scope id).

    Without those whose heads came later than `noted` (µs): these were recorded as in use since.
    """
    updated, scope_id = after
    behind = or_(_SESSION.updated > updated, and_(_SESSION.updated == updated, _SESSION.scope_id > scope_id))
    unused = select(schema.session).where(
        _SESSION.app_scope_id == app_scope_id,
        ~_SESSION.deleted,
        _SESSION.updated.between(updated, before),
        _SESSION.flushed_at <= _EPOCH + timedelta(microseconds=noted),
        behind,
    )
    return unused.order_by(_SESSION.updated, _SESSION.scope_id).limit(limit)


async def read_heads(connection: AsyncConnection, query: Select[Any]) -> list[StoredHead]:
    """The heads that a query on sessions finds."""
    rows = (await connection.execute(query)).mappings()
    return [StoredHead(row["scope_id"], head_of(ScopeKind.SESSION, row)) for row in rows]


async def read_revisions(connection: AsyncConnection, scope_ids: list[str]) -> dict[str, int]:
    """The revisions of sessions' heads, tombstones too; absent ones are left out."""
    found = await bulk.HEADS[ScopeKind.SESSION].revisions(connection, [(scope_id,) for scope_id in scope_ids])
    return {scope_id: revision for (scope_id,), revision in found.items()}
