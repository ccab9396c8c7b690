"""Listings of living sessions, each served by an index."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.heads import head_of
from sessioncache.entries import Head
from sessioncache.scopes import ScopeKind

_SESSION = schema.session.c


def sessions_query(scope_id: str, by: Literal["user", "app"], limit: int | None) -> Select[tuple[object, ...]]:
    """The living sessions of a user's or app's scope, newest first, ties by session id."""
    owner = _SESSION.user_scope_id if by == "user" else _SESSION.app_scope_id
    living = select(schema.session).where(owner == scope_id, ~_SESSION.deleted)
    return living.order_by(_SESSION.updated.desc(), _SESSION.session_id).limit(limit)


def bare_query(bare_id: str) -> Select[tuple[object, ...]]:
    """The living sessions of one org that bear one session id, by app and user."""
    found = select(schema.session).where(_SESSION.bare_id == bare_id, ~_SESSION.deleted)
    return found.order_by(_SESSION.app, _SESSION.user_id)


async def read_unused(
    connection: AsyncConnection, app_scope_id: str, before: int, after: str, most: int
) -> list[tuple[str, Head]]:
    """Living sessions of an app, last updated at or before `before`, whose scope id is above `after`, by scope id."""
    unused = select(schema.session).where(
        _SESSION.app_scope_id == app_scope_id,
        ~_SESSION.deleted,
        _SESSION.updated <= before,
        _SESSION.scope_id > after,
    )
    rows = (await connection.execute(unused.order_by(_SESSION.scope_id).limit(most))).mappings()
    return [(row["scope_id"], head_of(ScopeKind.SESSION, row)) for row in rows]


async def read_heads(connection: AsyncConnection, query: Select[tuple[object, ...]]) -> list[Head]:
    """The heads that a query on sessions finds."""
    rows = (await connection.execute(query)).mappings()
    return [head_of(ScopeKind.SESSION, row) for row in rows]
