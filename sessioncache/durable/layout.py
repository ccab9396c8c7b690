"""The layout record: settings that both tiers must agree on, written once per database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sessioncache.durable import schema
from sessioncache.durable.fence import insert_ignoring


async def read_layout(connection: AsyncConnection) -> dict[str, str]:
    """All recorded names and values."""
    rows = await connection.execute(select(schema.layout.c.name, schema.layout.c.value))
    return {row.name: row.value for row in rows}


async def record_layout(connection: AsyncConnection, values: Mapping[str, str]) -> dict[str, str]:
    """Record each value whose name is absent; everything that is recorded then."""
    rows = [{"name": name, "value": value} for name, value in sorted(values.items())]
    if rows:
        await connection.execute(insert_ignoring(connection, schema.layout), rows)
    return await read_layout(connection)


async def note(connection: AsyncConnection, name: str, value: str) -> None:
    """Write one row, whether its name is there or not; several processes may do so at once."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(schema.layout).values(name=name, value=value)
    await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": value}))
