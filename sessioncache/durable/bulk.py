"""Bulk statements: guarded upserts, and the revisions that the rows have now.

PostgreSQL gets one array a column in binary form (``unnest``): no more than a tenth slower than COPY into a temporary
table, and nothing is left behind in the connection, so that a pooler may stand between.  SQLite gets one statement for
all rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Table, bindparam, literal_column, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.arrays import ARRAYS, teach
from sessioncache.durable.statement_sizes import StatementSizes, pieces_of

Row = tuple[Any, ...]
Id = tuple[str, ...]

CLOCK = {
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "sqlite": "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000"
    " + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)",
}
"""The database's clock in microseconds (SQLite's shows milliseconds)."""
NOW = {"postgresql": "now()", "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now')"}
"""The database's clock as a value for a column of times."""
_TYPES: dict[type, str] = {str: "text", int: "bigint", bool: "boolean"}


@dataclass(frozen=True)
class BulkTable:
    """A table that flushes write: rows are tuples of all its columns but `written`."""

    table: Table
    key_length: int
    written: str
    """The column that holds the time of writing."""

    def id_of(self, row: Row) -> Id:
        """What identifies a row."""
        return row[: self.key_length]

    @cached_property
    def columns(self) -> list[str]:
        """The names of a row's columns, in order."""
        return [column.name for column in self.table.columns if column.name != self.written]

    @cached_property
    def revision_at(self) -> int:
        """Where in a row the revision is."""
        return self.columns.index("revision")

    @cached_property
    def types(self) -> list[str]:
        """PostgreSQL's types of a row's columns."""
        return [_TYPES[self.table.c[name].type.python_type] for name in self.columns]

    @property
    def beside(self) -> list[str]:
        """What a row ends with, besides its columns."""
        return []

    @cached_property
    def keys(self) -> list[str]:
        """The columns that identify a row."""
        return self.columns[: self.key_length]

    async def upsert(self, connection: AsyncConnection, rows: Sequence[Row]) -> int:
        """Insert rows, or replace those whose revision is smaller (R7); the number of rows that were written.

        `rows` are sorted and unique.  Rows that are not written are locked nevertheless (PostgreSQL).
        """
        if connection.dialect.name == "sqlite":
            return await self._upsert_sqlite(connection, rows)
        pieces = pieces_of(connection)
        return sum([await self._upsert_piece(connection, piece, pieces) for piece in pieces.cut(rows)])

    async def _upsert_piece(self, connection: AsyncConnection, rows: Sequence[Row], pieces: StatementSizes) -> int:
        began = time.monotonic()
        try:
            arrays = await self._arrays(connection, rows)
            taken = (await connection.exec_driver_sql(self._postgresql_upsert, arrays)).rowcount
        except BaseException:
            pieces.failed(time.monotonic() - began)
            raise
        pieces.took(len(rows), time.monotonic() - began)
        return taken

    async def _upsert_sqlite(self, connection: AsyncConnection, rows: Sequence[Row]) -> int:
        # Without SQLAlchemy, which takes a fifth of the time of a batch here.
        driver: Any = (await connection.get_raw_connection()).driver_connection
        async with driver.executemany(self._sqlite_upsert, rows) as cursor:
            taken: int = cursor.rowcount
        return taken

    async def revisions(self, connection: AsyncConnection, ids: Sequence[Id]) -> dict[Id, int]:
        """The revisions that rows have now; absent rows are left out."""
        if connection.dialect.name == "sqlite":
            result = await connection.exec_driver_sql(self._sqlite_revisions, (json.dumps(ids),))
        else:
            result = await connection.exec_driver_sql(self._postgresql_revisions, await self._arrays(connection, ids))
        return {tuple(row[:-1]): row[-1] for row in result}

    async def _arrays(self, connection: AsyncConnection, rows: Sequence[Row]) -> tuple[Sequence[Any], ...]:
        """The first columns of rows, as many as they have."""
        columns = zip(*rows, strict=True)
        if not await teach(connection):
            return tuple(map(list, columns))
        return tuple(ARRAYS[kind](column) for kind, column in zip(self.types, columns, strict=False))

    @cached_property
    def _sqlite_upsert(self) -> str:
        given = "".join(f"?{number}, " for number in range(1, len(self.columns) + 1))
        return self._upsert(f"SELECT {given}{NOW['sqlite']} WHERE {self._sqlite_condition}", "max")

    @property
    def _sqlite_condition(self) -> str:
        return "true"

    @cached_property
    def _postgresql_upsert(self) -> str:
        names = ", ".join(self.columns)
        order = ", ".join(f'{key} COLLATE "C"' for key in self.keys)
        source = f"{self._unnest([*self.columns, *self.beside])} WHERE {self._postgresql_condition}"
        return self._upsert(f"SELECT {names}, now() FROM {source} ORDER BY {order}", "greatest")

    @property
    def _postgresql_condition(self) -> str:
        return "true"

    def _upsert(self, source: str, larger: str) -> str:
        name, written = self.table.name, self.written
        changed = [*self.columns[self.key_length :], written]
        return (
            f"INSERT INTO {name} AS stored ({', '.join(self.columns)}, {written}) {source}"
            f" ON CONFLICT ({', '.join(self.keys)}) DO UPDATE SET"
            f" {', '.join(self._assigned(column, larger) for column in changed)} WHERE {self._is_news}"
        )

    @property
    def _is_news(self) -> str:
        return "stored.revision < excluded.revision"

    def _assigned(self, column: str, _larger: str) -> str:
        return f"{column} = excluded.{column}"

    @cached_property
    def _postgresql_revisions(self) -> str:
        keys = ", ".join(self.keys)
        return f"SELECT {keys}, revision FROM {self._unnest(self.keys)} JOIN {self.table.name} USING ({keys})"

    @cached_property
    def _sqlite_revisions(self) -> str:
        match = " AND ".join(f"stored.{key} = wanted.value ->> {i}" for i, key in enumerate(self.keys))
        names = ", ".join(f"stored.{key}" for key in self.keys)
        return f"SELECT {names}, revision FROM json_each(?) AS wanted CROSS JOIN {self.table.name} AS stored ON {match}"

    def _unnest(self, columns: Sequence[str]) -> str:
        arrays = ", ".join(f"%b::{kind}[]" for kind in self.types[: len(columns)])
        return f"unnest({arrays}) AS given({', '.join(columns)})"


@dataclass(frozen=True)
class HeadTable(BulkTable):
    """A table of heads.  Its rows end with what the hash knows to be flushed, 0 where it knows nothing.

    A row whose head in the database is below that, or missing, is left out: the database has come back older than it
    was (R18).  The statement reads that head anyway.
    """

    through: str = "coalesce({0}.flushed, {0}.revision)"
    """The column that records how far a scope was flushed."""
    raised: tuple[str, ...] = ()
    """Columns that only grow, each independently of the others, whatever the guard on the revision says.

    A row that was cleared since it was read is refused all the same, so that whoever writes it learns of the clear.
    """

    @cached_property
    def types(self) -> list[str]:
        """PostgreSQL's types of a row's columns, and of what it ends with."""
        return [*super().types, "bigint"]

    @property
    def beside(self) -> list[str]:
        """What the hash knows to be flushed."""
        return ["seen"]

    @property
    def _sqlite_condition(self) -> str:
        seen = len(self.columns) + 1
        same = " AND ".join(f"known.{key} = ?{number}" for number, key in enumerate(self.keys, 1))
        return self._condition(f"?{seen}", same)

    @property
    def _postgresql_condition(self) -> str:
        return self._condition("given.seen", " AND ".join(f"known.{key} = given.{key}" for key in self.keys))

    def _condition(self, seen: str, same: str) -> str:
        known = f"SELECT 1 FROM {self.table.name} AS known WHERE {same} AND {self.through.format('known')} >= {seen}"
        return f"({seen} = 0 OR EXISTS ({known}))"

    @property
    def _is_news(self) -> str:
        if not self.raised:
            return super()._is_news
        higher = " OR ".join(f"stored.{column} < excluded.{column}" for column in self.raised)
        return f"stored.cleared <= excluded.cleared AND ({higher})"

    def _assigned(self, column: str, larger: str) -> str:
        if column in self.raised:
            return f"{column} = {larger}(stored.{column}, excluded.{column})"
        if column != "flushed":
            return super()._assigned(column, larger)
        return f"flushed = {larger}({self.through.format('stored')}, excluded.flushed)"

    async def flushed(self, connection: AsyncConnection, ids: Sequence[Id]) -> dict[Id, int]:
        """How far the scopes of heads were flushed; absent heads are left out."""
        keys: list[ColumnElement[Any]] = [self.table.c[key] for key in self.keys]
        through: ColumnElement[int] = literal_column(self.through.format(self.table.name))
        found = await connection.execute(select(*keys, through).where(tuple_(*keys).in_(ids)))
        return {tuple(row[:-1]): row[-1] for row in found}

    async def raise_flushed(self, connection: AsyncConnection, through: Mapping[Id, int]) -> None:
        """Record how far scopes were flushed whose heads were newer than ours already."""
        names = [f"of_{key}" for key in self.keys]
        given = [dict(zip(names, name, strict=True)) | {"through": top} for name, top in sorted(through.items())]
        if given:
            same = [self.table.c[key] == bindparam(name) for key, name in zip(self.keys, names, strict=True)]
            known: ColumnElement[int] = literal_column(self.through.format(self.table.name))
            value: ColumnElement[int] = bindparam("through", type_=BigInteger)
            column = "flushed" if "flushed" in self.table.c else "revision"
            raised = update(self.table).where(*same, known < value).values({column: value})
            await connection.execute(raised, given)


STATE = BulkTable(schema.state, 2, "updated_at")
NAMESPACES = HeadTable(schema.namespace, 2, "flushed_at", "{0}.revision", ("cleared", "revision"))
_HEAD_TABLES = {table: HeadTable(table, 1, "flushed_at") for table in schema.HEADS.values()}
HEADS = {kind: _HEAD_TABLES[table] for kind, table in schema.HEADS.items()}
