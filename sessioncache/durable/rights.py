"""Rights: what the role of a URL may do with our tables.  Asking changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema

_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
_FEWER = {
    schema.fence.name: ("SELECT", "INSERT", "UPDATE"),
    schema.incarnation.name: ("SELECT", "INSERT"),
    schema.layout.name: ("SELECT", "INSERT", "UPDATE"),
}
# A table that is hidden from us, since its schema is, has no name that we could ask by.
_MISSING = text(
    "SELECT 'USAGE on schema ' || nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE relname = :version AND NOT has_schema_privilege(n.oid, 'USAGE')"
    " UNION ALL SELECT wanted.privilege || ' on ' || wanted.name"
    " FROM unnest(CAST(:names AS text[]), CAST(:privileges AS text[])) AS wanted(name, privilege)"
    " WHERE to_regclass(wanted.name) IS NOT NULL"
    " AND NOT has_table_privilege(to_regclass(wanted.name)::oid, wanted.privilege)"
)


def _needed() -> Iterator[tuple[str, str]]:
    """What agents and workers do with each table."""
    yield schema.VERSION_TABLE, "SELECT"
    for name in sorted(schema.metadata.tables):
        for privilege in _FEWER.get(name, _ALL):
            yield name, privilege


async def missing_rights(connection: AsyncConnection) -> list[str]:
    """What our role may not do and agents and workers do, in the words of GRANT."""
    if connection.dialect.name == "sqlite":
        return _missing_of_file(str(connection.engine.url.database))
    names, privileges = zip(*_needed(), strict=True)
    given = {"version": schema.VERSION_TABLE, "names": list(names), "privileges": list(privileges)}
    return [told for (told,) in await connection.execute(_MISSING, given)]


def _missing_of_file(name: str) -> list[str]:
    path = Path(name.removeprefix("file:"))
    # Its write-ahead log lies beside it.
    places = {"the file": path, "its folder": path.parent}
    return [f"writing {told}" for told, place in places.items() if place.exists() and not os.access(place, os.W_OK)]
