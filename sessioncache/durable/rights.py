"""Rights: what the role of a URL, and other roles, may do with our tables.  The checks change nothing."""

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
# A table in a schema that is hidden from us has no name that we could ask by.
_MISSING = text(
    "SELECT 'USAGE on schema ' || nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE relname = :version AND NOT has_schema_privilege(n.oid, 'USAGE')"
    " UNION ALL SELECT wanted.privilege || ' on ' || wanted.name"
    " FROM unnest(CAST(:names AS text[]), CAST(:privileges AS text[])) AS wanted(name, privilege)"
    " WHERE to_regclass(wanted.name) IS NOT NULL"
    " AND NOT has_table_privilege(to_regclass(wanted.name)::oid, wanted.privilege)"
)

# Whoever may write state is an agent or a worker, and needs the other tables too; the owner has them by itself.
_UNEVEN = text(
    "SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,"
    " wanted.name, wanted.privilege"
    " FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS acl"
    " CROSS JOIN unnest(CAST(:names AS text[]), CAST(:privileges AS text[])) AS wanted(name, privilege)"
    " WHERE c.oid = to_regclass(:state) AND acl.privilege_type = 'INSERT' AND acl.grantee <> c.relowner"
    " AND to_regclass(wanted.name) IS NOT NULL"
    " AND NOT has_table_privilege(acl.grantee, to_regclass(wanted.name)::oid, wanted.privilege)"
)


def _needed() -> Iterator[tuple[str, str]]:
    """The rights that agents and workers need on each table."""
    yield schema.VERSION_TABLE, "SELECT"
    for name in sorted(schema.metadata.tables):
        for privilege in _FEWER.get(name, _ALL):
            yield name, privilege


async def missing_rights(connection: AsyncConnection) -> list[str]:
    """The rights that our role lacks and agents and workers need, in the words of GRANT."""
    if connection.dialect.name == "sqlite":
        return _missing_of_file(str(connection.engine.url.database))
    return [told for (told,) in await connection.execute(_MISSING, {"version": schema.VERSION_TABLE} | _asked())]


async def missing_grants(connection: AsyncConnection) -> list[str]:
    """The statements that grant roles which may write our state what they lack on our other tables."""
    if connection.dialect.name == "sqlite":
        return []
    lacking: dict[str, tuple[set[str], set[str]]] = {}
    for role, table, privilege in await connection.execute(_UNEVEN, {"state": schema.state.name} | _asked()):
        tables, privileges = lacking.setdefault(role, (set(), set()))
        tables.add(table)
        privileges.add(privilege)
    return [
        f"GRANT {', '.join(one for one in _ALL if one in privileges)} ON {', '.join(sorted(tables))} TO {role}"
        for role, (tables, privileges) in sorted(lacking.items())
    ]


def _asked() -> dict[str, list[str]]:
    names, privileges = zip(*_needed(), strict=True)
    return {"names": list(names), "privileges": list(privileges)}


def _missing_of_file(name: str) -> list[str]:
    path = Path(name.removeprefix("file:"))
    # Its write-ahead log lies beside it.
    places = {"the file": path, "its folder": path.parent}
    return [f"writing {told}" for told, place in places.items() if place.exists() and not os.access(place, os.W_OK)]
