"""Clearing: rows that the head of their scope tells to be dead leave SQL with the flush of that head (R14).

A clear, a delete and a birth write no tombstone for each entry: last cleared in the head tells that what is at or below
it is dead, wherever it lies.  The rows go once the head is there, in the same transaction, so that no reader ever meets
one without the other.  The lock of the head is that of its rows: nobody else writes them meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.arrays import bigint_array, teach, text_array
from sessioncache.durable.pieces import pieces_of


class Cleared(NamedTuple):
    """Up to where the rows of a scope are dead."""

    scope_id: str
    namespace: str | None
    """'' for a session's plain keys; None: all of a session, with what is known of each namespace."""
    revision: int


_SOME = "(given.namespace IS NULL OR stored.namespace = given.namespace) AND stored.revision <= given.revision"
_ALL = "given.namespace IS NULL AND stored.revision <= given.revision AND stored.cleared <= given.revision"
_DELETE = {
    "postgresql": "DELETE FROM {table} AS stored USING unnest(%b::text[], %b::text[], %b::bigint[])"
    " AS given(scope_id, namespace, revision) WHERE stored.scope_id = given.scope_id AND {which}",
    "sqlite": "DELETE FROM {table} WHERE rowid IN (SELECT stored.rowid FROM (SELECT value ->> 0 AS scope_id,"
    " value ->> 1 AS namespace, value ->> 2 AS revision FROM json_each(?)) AS given"
    " CROSS JOIN {table} AS stored ON stored.scope_id = given.scope_id AND {which})",
}


async def drop_cleared(connection: AsyncConnection, cleared: Sequence[Cleared]) -> None:
    """Remove the dead rows of scopes; of sessions also the records of namespaces that were not flushed since.

    One statement for many scopes.
    """
    whole = [one for one in cleared if one.namespace is None]
    for name, which, some in ((schema.state.name, _SOME, cleared), (schema.namespace.name, _ALL, whole)):
        await _delete(connection, _DELETE[connection.dialect.name].format(table=name, which=which), some)


async def _delete(connection: AsyncConnection, statement: str, cleared: Sequence[Cleared]) -> None:
    pieces = pieces_of(connection)
    for piece in pieces.cut(cleared):
        began = time.monotonic()
        try:
            await connection.exec_driver_sql(statement, await _arguments(connection, piece))
        except BaseException:
            pieces.failed()
            raise
        pieces.took(len(piece), time.monotonic() - began)


async def _arguments(connection: AsyncConnection, cleared: Sequence[Cleared]) -> tuple[object, ...]:
    if connection.dialect.name == "sqlite":
        return (json.dumps(cleared),)
    scopes, namespaces, revisions = zip(*cleared, strict=True)
    if not await teach(connection):
        return list(scopes), list(namespaces), list(revisions)
    return text_array(scopes), text_array(namespaces), bigint_array(revisions)
