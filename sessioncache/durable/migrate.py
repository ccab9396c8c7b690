"""The schema's migrations.  Alembic is imported only where one runs: its import takes longer than all others."""

from __future__ import annotations

import operator
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from tenacity import AsyncRetrying, retry_if_result, wait_fixed

from sessioncache.durable import rights
from sessioncache.durable.engine import create_engine, prepare_engine
from sessioncache.durable.schema import SCHEMA_REVISION, VERSION_TABLE
from sessioncache.durable.transactions import reading, writing
from sessioncache.errors import ConfigurationError, SchemaVersionError

if TYPE_CHECKING:
    from sqlalchemy import Connection

_LOCK = 0x5E5510CA
"""The number of the advisory lock against other upgrades."""
_PAUSE = 0.05
"""Seconds between two attempts while others are upgrading."""
_ALEMBIC = threading.Lock()
_LOCK_WAIT = 120.0
"""Seconds to wait for another process that is upgrading an SQLite file."""


def head_revision() -> str:
    """The schema revision that this version needs; asks no database."""
    return SCHEMA_REVISION


async def current_revision(engine: AsyncEngine) -> str | None:
    """The schema revision of the database, None where there is no schema of ours."""
    async with reading(prepare_engine(engine)) as connection:
        return await connection.run_sync(_revision)


async def check_schema(engine: AsyncEngine) -> None:
    """SchemaVersionError where the database's schema is not the one needed; ConfigurationError for a wrong encoding."""
    async with reading(prepare_engine(engine)) as connection:
        await _check_encoding(connection)
        found = await connection.run_sync(_revision)
    if found != SCHEMA_REVISION:
        raise _wrong_version(found)


async def upgrade_schema(engine: AsyncEngine) -> str:
    """Bring the schema up to date and return its revision.  Any number of processes and tasks may do so at once.

    On PostgreSQL it takes two connections of the engine.  Raises SchemaVersionError where the schema is newer than
    this version knows.
    """
    if await current_revision(engine) != SCHEMA_REVISION:
        async with _alone(engine) as connection, _turn():
            await connection.run_sync(_upgrade)
    return SCHEMA_REVISION


async def missing_grants(engine: AsyncEngine) -> list[str]:
    """The GRANTs that roles of agents and workers lack: rights that were granted on all tables do not include new
    ones."""
    async with reading(prepare_engine(engine)) as connection:
        return await rights.missing_grants(connection)


@asynccontextmanager
async def _alone(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection for the migrations of a database, while no other process migrates it."""
    if engine.dialect.name == "sqlite":
        async with writing(engine, _LOCK_WAIT) as connection:
            yield connection
        return
    # The lock is that of a separate transaction, since a pooler may stand between and an index is built outside of any.
    async with writing(engine, None) as holder, engine.connect() as connection:
        await _check_encoding(holder)
        # Tried repeatedly: building an index waits for all statements, also for one that waits for a lock.
        await _until(partial(_try_lock, holder))
        # Also because it ends the statement before, whose snapshot would be waited for, too.
        await holder.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        await connection.execution_options(isolation_level="READ COMMITTED")
        yield connection


async def _try_lock(connection: AsyncConnection) -> bool:
    lock = text("SELECT pg_try_advisory_xact_lock(:lock)")
    if (await connection.execute(lock, {"lock": _LOCK})).scalar():
        return True
    await connection.rollback()  # a snapshot that is kept until the next attempt would be waited for, too
    return False


@asynccontextmanager
async def _turn() -> AsyncIterator[None]:
    """One migration at a time: Alembic keeps its context in variables of the process, whatever the task, loop or
    thread."""

    async def taken() -> bool:
        return _ALEMBIC.acquire(blocking=False)

    await _until(taken)
    try:
        yield
    finally:
        _ALEMBIC.release()


async def _until(done: Callable[[], Awaitable[bool]]) -> None:
    await AsyncRetrying(retry=retry_if_result(operator.not_), wait=wait_fixed(_PAUSE))(done)


async def upgrade_database(url: str) -> str:
    """Bring the schema of the database behind a URL up to date (see `upgrade_schema`)."""
    engine = create_engine(url)
    try:
        return await upgrade_schema(engine)
    finally:
        await engine.dispose()


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "sessioncache_migrations:")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError:
        raise _wrong_version(_revision(connection)) from None


async def _check_encoding(connection: AsyncConnection) -> None:
    if connection.dialect.name != "postgresql":
        return
    encoding = (await connection.execute(text("SHOW server_encoding"))).scalar_one()
    if encoding != "UTF8":
        raise ConfigurationError(f"the database has encoding {encoding}, UTF8 is needed")


def _wrong_version(found: str | None) -> SchemaVersionError:
    what = "has no sessioncache schema" if found is None else f"has schema {found}"
    return SchemaVersionError(
        f"the database {what}, this version needs {SCHEMA_REVISION}: run `sessioncache db upgrade`"
        " (of a newer sessioncache, if the database is newer)",
        found=found,
        needed=SCHEMA_REVISION,
    )
