"""The floor of a flush: the same rows and heads, upserted by the barest means, one transaction a batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

import asyncpg
import psycopg

from sessioncache.durable.bulk import HEADS, STATE, BulkTable
from sessioncache.primitives.scopes import ScopeKind, app_id, bare_id, key_id, session_scope_id, user_id

Row = tuple[Any, ...]

TABLES = (HEADS[ScopeKind.SESSION], STATE)
"""What a batch writes, in this order."""


class Floor(Protocol):
    """A way to upsert a batch: the rows of each of `TABLES`."""

    async def upsert(self, batch: Sequence[Sequence[Row]]) -> None:
        """In one transaction, to its commit."""

    async def aclose(self) -> None:
        """Close the connection."""


def make_batch(scopes: range, keys: int, text: str, revision: int) -> list[list[Row]]:
    """Heads and rows of the sessions of these numbers, sorted by id."""
    now = datetime.now(UTC)
    heads, rows = [], []
    for number in scopes:
        user, session = f"user{number}", f"session{number}"
        scope = session_scope_id("", "bench", user, session)
        parents = user_id("", "bench", user), app_id("", "bench"), bare_id("", session)
        counts = (revision, revision, revision - 1, False, revision, revision, 0, 0, "", number % 256, now, revision)
        heads.append((scope, "", "bench", user, session, *parents, "", *counts))
        rows += [(scope, key_id("", f"key{k}"), "", f"key{k}", text, revision, False, now, None) for k in range(keys)]
    return [sorted(heads), sorted(rows)]


def columns_of(table: BulkTable) -> list[str]:
    """All columns, in order."""
    return [column.name for column in table.table.columns]


def _upsert(table: BulkTable, source: str) -> str:
    columns = columns_of(table)
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns[table.key_length :])
    return (
        f"INSERT INTO {table.table.name} AS stored ({', '.join(columns)}) {source}"
        f" ON CONFLICT ({', '.join(table.keys)}) DO UPDATE SET {changed} WHERE stored.revision < excluded.revision"
    )


def _types(table: BulkTable) -> list[str]:
    names = {str: "text", int: "bigint", bool: "boolean", datetime: "timestamptz"}
    return [names[column.type.python_type] for column in table.table.columns]


class Unnest:
    """asyncpg, one array a column."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._statements = [_upsert(table, self._source(table)) for table in TABLES]

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect."""
        return cls(await asyncpg.connect(url))

    async def upsert(self, batch: Sequence[Sequence[Row]]) -> None:
        async with self._connection.transaction():
            for statement, rows in zip(self._statements, batch, strict=True):
                await self._connection.execute(statement, *map(list, zip(*rows, strict=True)))

    async def aclose(self) -> None:
        await self._connection.close()

    @staticmethod
    def _source(table: BulkTable) -> str:
        arrays = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(_types(table), 1))
        return f"SELECT * FROM unnest({arrays})"


class Copy:
    """psycopg, binary COPY into a temporary table, then INSERT … SELECT."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and make the temporary tables."""
        connection = await psycopg.AsyncConnection.connect(url)
        for table in TABLES:
            name = table.table.name
            await _execute(connection, f"CREATE TEMPORARY TABLE new_{name} (LIKE {name}) ON COMMIT DELETE ROWS")
        await connection.commit()
        return cls(connection)

    async def upsert(self, batch: Sequence[Sequence[Row]]) -> None:
        async with self._connection.transaction(), self._connection.cursor() as cursor:
            for table, rows in zip(TABLES, batch, strict=True):
                async with cursor.copy(f"COPY new_{table.table.name} FROM STDIN (FORMAT BINARY)".encode()) as copy:
                    copy.set_types([*self._types_of(table)])
                    for row in rows:
                        await copy.write_row(row)
                await cursor.execute(_upsert(table, f"SELECT * FROM new_{table.table.name}").encode())

    async def aclose(self) -> None:
        await self._connection.close()

    @staticmethod
    def _types_of(table: BulkTable) -> list[str]:
        integers = {"bucket"}
        kinds = zip(columns_of(table), _types(table), strict=True)
        return ["int4" if name in integers else kind for name, kind in kinds]


async def _execute(connection: psycopg.AsyncConnection[Any], statement: str) -> None:
    await connection.execute(statement.encode())


class Executemany:
    """sqlite3, one statement for all rows of a table."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._statements = [_upsert(table, f"VALUES ({', '.join('?' * len(columns_of(table)))})") for table in TABLES]

    async def upsert(self, batch: Sequence[Sequence[Row]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for statement, rows in zip(self._statements, batch, strict=True):
            self._connection.executemany(statement, rows)
        self._connection.execute("COMMIT")

    async def aclose(self) -> None:
        self._connection.close()


def as_sqlite(batch: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Times as text, as SQLite stores them."""

    def as_text(value: Any) -> Any:
        return value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value

    return [[tuple(map(as_text, row)) for row in rows] for rows in batch]
