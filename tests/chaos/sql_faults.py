"""The kinds of fault that a SQL database has."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

import psycopg

from tests.chaos.faults import Fault
from tests.chaos.stage import Stage, in_thread
from tests.chaos.wire import Wire

_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def lock_sqlite(stage: Stage) -> None:
    """Another process holds the whole database for some seconds."""
    path = stage.database.removeprefix("sqlite:///")
    holder = await in_thread(lambda: sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False))
    try:
        await in_thread(lambda: holder.execute("BEGIN EXCLUSIVE"))
        await stage.pause(1, 6)
    finally:
        holder.close()


async def stop_postgresql(stage: Stage) -> None:
    """PostgreSQL is shut down, or crashes, and comes back some seconds later."""
    server = stage.postgresql
    assert server is not None
    await in_thread(stage.chance.choice([server.stop, server.kill]))
    await stage.pause(1, 6)
    await in_thread(server.start)


def _wire(stage: Stage) -> Wire:
    return stage.chance.choice(stage.sql_wires)


async def cut_sql(stage: Stage) -> None:
    """Connections to SQL break, maybe just before or after a commit."""
    for _ in range(5):
        _wire(stage).cut()
        await stage.pause(0.02, 0.2)


async def stall_sql(stage: Stage) -> None:
    """SQL is out of reach, without a word."""
    wire = _wire(stage)
    wire.stall()
    await stage.pause(0.5, 6)
    wire.resume()


async def slow_sql(stage: Stage) -> None:
    """Each way to SQL takes long."""
    wire = _wire(stage)
    wire.delay = stage.chance.uniform(0.02, 0.3)
    await stage.pause(1, 4)
    wire.delay = 0.0


async def half_open_sql(stage: Stage) -> None:
    """Connections to SQL lose their other end without a word."""
    _wire(stage).half_open()
    await stage.pause(1, 3)


async def terminate_backends(stage: Stage) -> None:
    """An administrator ends or interrupts what runs, again and again."""
    for _ in range(10):
        how = stage.chance.choice(["pg_terminate_backend", "pg_cancel_backend"])
        await in_thread(lambda how=how: _execute(stage, f"SELECT {how}(pid) {_OTHERS}"))  # type: ignore[misc]
        await stage.pause(0.02, 0.3)


async def hold_rows(stage: Stage) -> None:
    """Another transaction holds rows that flushes need."""
    table = stage.chance.choice(["session", "user_scope", "app_scope", "state", "fence"])
    with await in_thread(lambda: psycopg.connect(stage.database)) as holder:
        await in_thread(lambda: holder.execute(f"SELECT 1 FROM sessioncache_{table} FOR UPDATE".encode()))
        await stage.pause(1, 5)
        holder.rollback()


async def deadlock(stage: Stage) -> None:
    """Another transaction takes rows in the order opposite to that of flushes: somebody is chosen as the victim."""
    for _ in range(5):
        await in_thread(lambda: _lock_backwards(stage))
        await stage.pause(0, 0.2)


def _lock_backwards(stage: Stage) -> None:
    with psycopg.connect(stage.database) as holder, suppress(psycopg.Error):
        holder.execute("SET lock_timeout = '2s'")
        ids = [row[0] for row in holder.execute("SELECT scope_id FROM sessioncache_user_scope ORDER BY 1 DESC")]
        for scope_id in ids:
            holder.execute("SELECT 1 FROM sessioncache_user_scope WHERE scope_id = %s FOR UPDATE", [scope_id])
            holder.execute("SELECT pg_sleep(0.2)")
        holder.rollback()


def _execute(stage: Stage, statement: str, *values: Any) -> None:
    with psycopg.connect(stage.database, autocommit=True) as connection:
        connection.execute(statement.encode(), values)


SQL_FAULTS = [
    Fault("SQL: database locked", lock_sqlite, "sqlite"),
    Fault("SQL: stopped", stop_postgresql, "postgresql"),
    Fault("SQL: connections cut", cut_sql, "postgresql"),
    Fault("SQL: stalled", stall_sql, "postgresql"),
    Fault("SQL: slow", slow_sql, "postgresql"),
    Fault("SQL: half-open", half_open_sql, "postgresql"),
    Fault("SQL: backends terminated", terminate_backends, "postgresql"),
    Fault("SQL: rows held", hold_rows, "postgresql"),
    Fault("SQL: deadlocks", deadlock, "postgresql"),
]
