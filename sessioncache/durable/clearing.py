"""Clearing: rows that are dead by the head of their scope leave SQL with the flush of that head (R14).

A clear, a delete and a birth write no tombstone for each entry: what is at or below "last cleared" in the head is dead,
wherever it is.  The rows are deleted once the head is written, in the same transaction, so that no reader ever finds
one without the other.  The lock of the head is also that of its rows: nobody else writes them meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, Table
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.arrays import bigint_array, teach, text_array
from sessioncache.durable.statement_sizes import pieces_of


class Cleared(NamedTuple):
    """The revision up to which rows of a scope are dead."""

    scope_id: str
    namespace: str | None
    """'' for a session's private keys; None: all of a session, with the records of its namespaces."""
    revision: int


_SOME = "(given.namespace IS NULL OR stored.namespace = given.namespace) AND stored.revision <= given.revision"
_ALL = "given.namespace IS NULL AND stored.revision <= given.revision AND stored.cleared <= given.revision"
_GIVEN = {
    "postgresql": "unnest(%b::text[], %b::text[], %b::bigint[]) AS given(scope_id, namespace, revision)",
    "sqlite": "(SELECT value ->> 0 AS scope_id, value ->> 1 AS namespace, value ->> 2 AS revision FROM json_each(?))"
    " AS given",
}
_DELETE = {
    "postgresql": "DELETE FROM {table} AS stored USING {given} WHERE stored.scope_id = given.scope_id AND {which}",
    "sqlite": "DELETE FROM {table} WHERE rowid IN (SELECT stored.rowid FROM {given}"
    " CROSS JOIN {table} AS stored ON stored.scope_id = given.scope_id AND {which})",
}
_TOLD = (
    "SELECT given.scope_id, given.namespace, given.revision FROM {given}"
    " JOIN {table} AS h ON h.scope_id = given.scope_id {record} WHERE given.revision <= {cleared}"
)
_RECORD = "LEFT JOIN sessioncache_namespace AS n ON n.scope_id = h.scope_id AND n.namespace = given.namespace"
_OF_A_SESSION = (
    "CASE WHEN h.deleted OR given.namespace = '' THEN h.cleared WHEN given.namespace IS NULL THEN h.birth - 1 "
    + schema.CLEARED_OF_SPACE
)


async def read_told(connection: AsyncConnection, table: Table, cleared: Sequence[Cleared]) -> set[Cleared]:
    """What the heads of one table contain already: its rows were deleted by the flush that wrote the head."""
    of_session = table is schema.session
    record, through = (_RECORD, _OF_A_SESSION) if of_session else ("", "h.cleared")
    given = _GIVEN[connection.dialect.name]
    statement = _TOLD.format(given=given, table=table.name, record=record, cleared=through)
    return {Cleared._make(row) for row in await _run(connection, statement, cleared)}


async def drop_cleared(connection: AsyncConnection, cleared: Sequence[Cleared]) -> None:
    """Delete the dead rows of scopes; for sessions also the records of namespaces that were not flushed since.

    One statement for many scopes.
    """
    whole = [one for one in cleared if one.namespace is None]
    for name, which, some in ((schema.state.name, _SOME, cleared), (schema.namespace.name, _ALL, whole)):
        dialect = connection.dialect.name
        await _run(connection, _DELETE[dialect].format(given=_GIVEN[dialect], table=name, which=which), some)


async def _run(connection: AsyncConnection, statement: str, cleared: Sequence[Cleared]) -> list[Row[tuple[Any, ...]]]:
    """Run a statement for some scopes; the rows that it returns."""
    pieces, rows = pieces_of(connection), list[Row[tuple[Any, ...]]]()
    for piece in pieces.cut(cleared):
        began = time.monotonic()
        try:
            found = await connection.exec_driver_sql(statement, await _arguments(connection, piece))
            rows += found.all() if found.returns_rows else []
        except BaseException:
            pieces.failed(time.monotonic() - began)
            raise
        pieces.took(len(piece), time.monotonic() - began)
    return rows


async def _arguments(connection: AsyncConnection, cleared: Sequence[Cleared]) -> tuple[object, ...]:
    if connection.dialect.name == "sqlite":
        return (json.dumps(cleared),)
    scopes, namespaces, revisions = zip(*cleared, strict=True)
    if not await teach(connection):
        return list(scopes), list(namespaces), list(revisions)
    return text_array(scopes), text_array(namespaces), bigint_array(revisions)
