"""A witness of what flush() says: just after it has returned, SQL is asked past the library."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import suppress
from typing import Any

import psycopg

from tests.chaos import cells
from tests.chaos.cast import APP, KEYS, SPACE, app_scope, session_of, user_of
from tests.chaos.journal import Journal
from tests.helpers import session, user

_TABLES = {"s": "session", "u": "user_scope", "a": "app_scope"}
_HEADS = "SELECT scope_id, cleared, birth, deleted FROM sessioncache_{table} WHERE scope_id IN ({marks})"
_SPACES = "SELECT scope_id, namespace, cleared FROM sessioncache_namespace WHERE scope_id IN ({marks})"
_ROWS = "SELECT scope_id, namespace, key, value, revision, deleted FROM sessioncache_state WHERE scope_id IN ({marks})"
_PATIENCE = 2.0


class Witness:
    """Looks at what the actors of one agent have in SQL, over a connection of its own."""

    def __init__(self, database_url: str, journal: Journal, actors: list[str]) -> None:
        self._url, self._journal, self._actors = database_url, journal, actors
        self._connection: Any = None

    async def look(self) -> None:
        """Note what SQL has, if it is in reach."""
        since = time.monotonic()
        with suppress(Exception):  # out of reach: a witness that cannot see says nothing
            found = await asyncio.wait_for(asyncio.to_thread(self._read), _PATIENCE)
            self._journal.note(stored=found, since=since)

    def _read(self) -> dict[str, Any]:
        if self._connection is None:
            self._connection = _open(self._url)
        try:
            return self._cells()
        except (sqlite3.Error, psycopg.Error):
            self._connection.close()
            self._connection = None
            raise

    def _cells(self) -> dict[str, Any]:
        scopes = {"a": [app_scope()], "u": [user(name, APP) for name in {user_of(one) for one in self._actors}]}
        scopes["s"] = [session(user_of(one), session_of(one), APP) for one in self._actors]
        ids = [scope.id for several in scopes.values() for scope in several]
        heads: dict[str, tuple[int, int]] = {}
        with _Snapshot(self._connection):
            for kind, several in scopes.items():
                rows = self._ask(_HEADS, [scope.id for scope in several], table=_TABLES[kind])
                heads |= {row[0]: (row[1], row[2]) for row in rows if not row[3]}
            spaces = {(scope_id, space): cleared for scope_id, space, cleared in self._ask(_SPACES, ids)}
            rows = self._ask(_ROWS, ids)

        def dead(scope_id: str, space: str) -> int:
            cleared, birth = heads[scope_id]
            return max(birth - 1, spaces.get((scope_id, space), 0)) if space else cleared

        values = {
            (scope_id, f"{space}/{key}" if space else key): json.loads(text)
            for scope_id, space, key, text, revision, deleted in rows
            if not deleted and scope_id in heads and revision > dead(scope_id, space)
        }
        found: dict[str, Any] = {}
        for actor in self._actors:
            found |= _cells_of(actor, values)
        return found

    def _ask(self, query: str, ids: list[str], **names: str) -> list[Any]:
        mark = "?" if self._url.startswith("sqlite") else "%s"
        text = query.format(marks=", ".join([mark] * len(ids)), **names)
        return list(self._connection.execute(text, ids).fetchall())


class _Snapshot:
    """A transaction that reads."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        sqlite = isinstance(self._connection, sqlite3.Connection)
        self._connection.execute("BEGIN" if sqlite else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("ROLLBACK")


def _open(url: str) -> Any:
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False)
    return psycopg.connect(url, autocommit=True, connect_timeout=2)


def _cells_of(actor: str, values: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """The life of an actor's session, the keys of that life, and the actor's keys in the shared scopes."""
    name, own = user_of(actor), session(user_of(actor), session_of(actor), APP).id
    life = cells.number_of(values.get((own, "life")))
    found = {cells.life_cell(name, session_of(actor)): life}
    for key in KEYS:
        if life is not None:
            for within in (key, f"{SPACE}/{key}"):
                cell = cells.private_cell(name, session_of(actor), life, within)
                found[cell] = cells.number_of(values.get((own, within)))
        for prefix, scope in ((f"u|{name}", user(name, APP)), ("a", app_scope())):
            found[f"{prefix}|{actor}-{key}"] = cells.number_of(values.get((scope.id, f"{actor}-{key}")))
    return found
