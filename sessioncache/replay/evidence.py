"""Evidence of the durable tier that owes nothing to the code under test: rows decoded by hand, a search for markers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from sessioncache.replay.model import Model

_ROWS = text("SELECT scope, user_id, session_id, key, value FROM sessioncache_entries WHERE org = '' AND app = :app")
_SESSIONS = text("SELECT user_id, session_id FROM sessioncache_session WHERE org = '' AND app = :app AND NOT deleted")

_TABLES = text(
    "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
)


async def decode_rows(engine: AsyncEngine, app: str) -> Model:
    """What the rows of an app say, read and decoded directly."""
    found = Model()
    async with engine.connect() as connection:
        for user, session in await connection.execute(_SESSIONS, {"app": app}):
            found.sessions[user, session] = {}
        for scope, user, session, key, value in await connection.execute(_ROWS, {"app": app}):
            _scope_of(found, scope, user, session)[key] = json.loads(value)
    return found


def _scope_of(found: Model, scope: str, user: str, session: str) -> dict[str, Any]:
    if scope == "session":
        return found.sessions.setdefault((user, session), {})
    return found.users.setdefault(user, {}) if scope == "user" else found.app


async def count_marker(engine: AsyncEngine, marker: str) -> int:
    """How often a text occurs in the database's file, or in a dump of all tables."""
    needle = marker.encode()
    if engine.dialect.name == "sqlite":
        return _count_in_file(Path(engine.url.database or ""), needle)
    return sum([row.count(needle) async for row in _dump(engine)])


def _count_in_file(path: Path, needle: bytes) -> int:
    parts = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")]
    return sum(part.read_bytes().count(needle) for part in parts if part.exists())


async def _dump(engine: AsyncEngine) -> AsyncIterator[bytes]:
    """Every row of every table of the database's schema as text, tables that are not ours included."""
    async with engine.connect() as connection:
        for (table,) in (await connection.execute(_TABLES)).all():
            for (row,) in await connection.execute(text(f"SELECT t::text FROM {table} t")):
                yield row.encode()
