"""Facts about a SQL database and our installation in it.  Reading them changes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import case, func, inspect, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sessioncache.durable import schema
from sessioncache.durable.engine import create_engine
from sessioncache.durable.errors import RefusedDataError, translated
from sessioncache.durable.layout import read_layout
from sessioncache.durable.reading import read_clock
from sessioncache.durable.rights import missing_rights
from sessioncache.durable.transactions import abandonable
from sessioncache.errors import DurableTierUnavailableError

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_STEP = 0.001
"""Seconds by which a clock that shows milliseconds may be behind."""
_POSTGRESQL = text(
    "SELECT current_setting('server_version'), current_setting('server_encoding'), pg_is_in_recovery(),"
    " current_setting('transaction_read_only') = 'on'"
)


@dataclass(frozen=True, slots=True)
class History:
    """How often buckets got another incarnation."""

    last_hour: int = 0
    last_day: int = 0
    since_last: float | None = None
    """Seconds since the last change; None: there was none."""


@dataclass(frozen=True, slots=True)
class SqlFacts:
    """One database; without a schema of ours only what the server reports."""

    where: str
    kind: str
    version: str
    driver: str
    revision: str | None
    """Of the schema; None: there is none, or the role may not read it."""
    encoding: str = "UTF8"
    standby: bool = False
    read_only: bool = False
    """Whether its operator has set it so."""
    missing_rights: Sequence[str] = ()
    """What the role of the URL may not do and agents and workers do."""
    layout: Mapping[str, str] | None = None
    """What this database was set up with; None where that is not known, as for the next two."""
    fences: Mapping[int, str] | None = None
    history: History | None = None
    offset: float | None = None
    """Seconds that its clock is ahead of this machine's."""


async def read_sql(url: str) -> SqlFacts:
    """The facts, within the caller's deadline; DurableTierUnavailableError, ConfigurationError.

    An SQLite file is opened for reading only, so that none is made and none is changed.
    """
    engine = _reading_engine(url)
    try:
        return await abandonable(_read(engine, where_sql(url)))
    except RefusedDataError as error:
        raise DurableTierUnavailableError(str(error)) from None
    finally:
        await engine.dispose()


def where_sql(url: str) -> str:
    """Where the database is, without user, password and options."""
    parsed = create_engine(url).url
    if parsed.get_backend_name() == "sqlite":
        return str(parsed.database)
    host = parsed.host or parsed.query.get("host") or "localhost"
    return f"{host}{f':{parsed.port}' if parsed.port else ''}/{parsed.database or ''}"


def _reading_engine(url: str) -> AsyncEngine:
    engine = create_engine(url)
    if engine.dialect.name != "sqlite":
        return engine
    name = str(engine.url.database)
    # SQLite would report of a missing file no more than that it cannot open it.
    if not name.startswith("file:") and not Path(name).exists():
        raise DurableTierUnavailableError("there is no such file")
    file = name if name.startswith("file:") else f"file:{quote(name)}"
    return create_async_engine(engine.url.set(database=file, query={"mode": "ro", "uri": "true"}))


async def _read(engine: AsyncEngine, where: str) -> SqlFacts:
    with translated():
        async with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                await connection.exec_driver_sql("BEGIN")
            else:
                await connection.execution_options(isolation_level="REPEATABLE READ")
            return await _read_all(connection, where)


async def _read_all(connection: AsyncConnection, where: str) -> SqlFacts:
    began = time.time()
    clock = await read_clock(connection) / 1_000_000
    offset = clock - min(max(clock, began - _STEP), time.time())
    lacks = await missing_rights(connection)
    # What may not be read is left out, so that the missing right can be reported.
    there = {name for name in await connection.run_sync(_tables_there) if f"SELECT on {name}" not in lacks}
    return SqlFacts(
        **await _server(connection),
        where=where,
        revision=await _revision(connection) if schema.VERSION_TABLE in there else None,
        layout=await read_layout(connection) if schema.layout.name in there else None,
        fences=await _fences(connection) if schema.fence.name in there else None,
        history=await _history(connection, clock) if schema.incarnation.name in there else None,
        offset=offset,
        missing_rights=lacks,
    )


async def _server(connection: AsyncConnection) -> dict[str, Any]:
    if connection.dialect.name == "sqlite":
        (told,) = (await connection.exec_driver_sql("SELECT sqlite_version()")).one()
        return {"kind": "SQLite", "version": told, "driver": f"aiosqlite {version('aiosqlite')}"}
    told, encoding, standby, read_only = (await connection.execute(_POSTGRESQL)).one()
    return {
        "kind": "PostgreSQL",
        "version": told.split()[0],
        "driver": f"psycopg {version('psycopg')}",
        "encoding": encoding,
        "standby": standby,
        "read_only": read_only,
    }


def _tables_there(connection: Any) -> set[str]:
    names = (schema.VERSION_TABLE, schema.layout.name, schema.fence.name, schema.incarnation.name)
    look = inspect(connection)
    return {name for name in names if look.has_table(name)}


async def _revision(connection: AsyncConnection) -> str | None:
    found: str | None = (await connection.execute(text(f"SELECT version_num FROM {schema.VERSION_TABLE}"))).scalar()
    return found


async def _fences(connection: AsyncConnection) -> dict[int, str]:
    rows = await connection.execute(select(schema.fence.c.bucket, schema.fence.c.incarnation))
    return {row.bucket: row.incarnation for row in rows}


async def _history(connection: AsyncConnection, clock: float) -> History:
    at = schema.incarnation.c.registered_at
    now = datetime.fromtimestamp(clock, UTC)

    def since(period: timedelta) -> Any:
        return func.sum(case((at >= now - period, 1), else_=0))

    columns = func.min(at), func.max(at), func.count(), since(_HOUR), since(_DAY)
    rows = await connection.execute(select(*columns).group_by(schema.incarnation.c.bucket))
    return summed(rows.all(), now)


def summed(buckets: Any, now: datetime) -> History:
    """Of rows (first, last, number, within an hour, within a day): the changes, which a bucket's first is none of."""
    hour = day = 0
    last: datetime | None = None
    for first, latest, number, within_hour, within_day in buckets:
        hour += within_hour - (_aware(first) >= now - _HOUR)
        day += within_day - (_aware(first) >= now - _DAY)
        if number > 1:
            last = max(last or _aware(latest), _aware(latest))
    return History(hour, day, None if last is None else max(0.0, (now - last).total_seconds()))


def _aware(at: datetime) -> datetime:
    """SQLite's times are UTC, and do not say so."""
    return at if at.tzinfo else at.replace(tzinfo=UTC)
