"""Tiers that come back older: SQL from a backup, Redis from a file older than the retention of tombstones, both."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from redis import Redis

from sessioncache.errors import SessionCacheError
from tests.chaos.faults import Fault, files_of
from tests.chaos.operating import file_of, open_sqlite
from tests.chaos.stage import Stage, in_thread
from tests.helpers import ROOT, execute, fetch, open_worker
from tests.waiting import wait_until_async

_SCHEMA = "backup"
_PATIENCE = 60.0
_SETTLED = 15.0
"""Seconds that a janitor goes on at most while it finds something amiss."""
_COMMAND = "import sys; from sessioncache.cli.main import main; sys.exit(main())"
_AGES_AGO = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%S.000000', {0}, '-30 days')",
    "postgresql": "{0} - interval '30 days'",
}


# ---- SQL


async def restore_with_command(stage: Stage) -> None:
    """SQL is put back to a backup, and the operator runs ``db restored`` before anybody goes on."""
    async with _put_back(stage, unsaid=False):
        await _say_restored(stage)
    await settle(stage)


async def restore_with_late_command(stage: Stage) -> None:
    """SQL is put back to a backup, and ``db restored`` is run some seconds later."""
    async with _put_back(stage):
        pass
    await stage.pause(0.5, 4)
    await _say_restored(stage)
    await settle(stage)


async def restore_silently(stage: Stage) -> None:
    """SQL comes back older, as after a failover to a standby that lags, and nobody says so."""
    async with _put_back(stage):
        pass
    await stage.pause(0.5, 4)
    await settle(stage)


@asynccontextmanager
async def _put_back(stage: Stage, *, unsaid: bool = True) -> AsyncIterator[None]:
    """SQL is put back to a backup of some seconds ago; the block runs before anybody goes on."""
    await in_thread(lambda: take_backup(stage))
    await stage.pause(2, 7)
    async with stage.frozen(forgets=False) as client:
        await put_back(stage, client, unsaid=unsaid)
        yield


def take_backup(stage: Stage) -> None:
    """Keep what SQL has now."""
    if stage.postgresql:
        copies = [f"CREATE TABLE {_SCHEMA}.{name} AS TABLE public.{name}" for name in _tables(stage)]
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
        gone = f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE"
        stage.administer(begin, gone, f"CREATE SCHEMA {_SCHEMA}", *copies, "COMMIT")
        return
    file = file_of(_backup_url(stage))
    file.unlink(missing_ok=True)
    with open_sqlite(stage.database) as connection:
        connection.execute("VACUUM INTO ?", [str(file)])
    connection.close()


async def put_back(stage: Stage, client: Redis, *, unsaid: bool) -> None:
    """Put SQL back to the backup, in one transaction; `unsaid`: nobody is told before work goes on."""
    names = await in_thread(lambda: _tables(stage))
    holder = await in_thread(lambda: _begin(stage, names))
    try:
        await stage.note_fall(client, _backup_url(stage), unsaid=unsaid)
        for name in names:
            await in_thread(lambda name=name: holder.execute(f"DELETE FROM {name}"))  # type: ignore[misc]
            copied = f"INSERT INTO {name} SELECT * FROM {_SCHEMA}.{name}"
            await in_thread(lambda copied=copied: holder.execute(copied))  # type: ignore[misc]
        await in_thread(lambda: holder.execute("COMMIT"))
    finally:
        holder.close()
    stage.bystander.falls += 1


def _begin(stage: Stage, names: Sequence[str]) -> Any:
    """A transaction beside which nobody writes."""
    if stage.postgresql:
        holder = psycopg.connect(stage.database, autocommit=True)
        while True:
            with suppress(psycopg.errors.DeadlockDetected):  # with a writer, which takes the tables in its own order
                holder.execute("BEGIN")
                holder.execute(f"LOCK TABLE {', '.join(names)} IN EXCLUSIVE MODE".encode())
                return holder
            holder.execute("ROLLBACK")
    connection = open_sqlite(stage.database)
    connection.execute(f"ATTACH ? AS {_SCHEMA}", [str(file_of(_backup_url(stage)))])
    connection.execute("BEGIN IMMEDIATE")
    return connection


def _tables(stage: Stage) -> list[str]:
    """Our tables, but for the one that tells the schema's version."""
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    if not stage.postgresql:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    names = sorted(str(row[0]) for row in fetch(stage.database, query))
    return [name for name in names if name.startswith("sessioncache_") and "alembic" not in name]


def _backup_url(stage: Stage) -> str:
    if not stage.postgresql:
        return f"sqlite:///{stage.folder}/{_SCHEMA}.db"
    sign = "&" if "?" in stage.database else "?"
    return f"{stage.database}{sign}options=-csearch_path%3D{_SCHEMA}"


async def _say_restored(stage: Stage, *, may_fail: bool = False) -> None:
    """Run the command; it must succeed, unless Redis goes away meanwhile."""
    tiers = ["--redis", stage.urls.redis, "--database", stage.urls.database]
    command = [sys.executable, "-c", _COMMAND, "db", "restored", *tiers]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await asyncio.wait_for(process.communicate(), _PATIENCE)
    if process.returncode and not may_fail:
        stage.say(f"db restored ended with {process.returncode}: {told.decode(errors='replace')[-300:]}")


async def settle(stage: Stage) -> None:
    """A janitor compares all that is hot with SQL, as all of them do in time; mirrors are told of no fall of SQL's."""
    ends = time.monotonic() + _SETTLED
    async with open_worker(stage.urls) as worker:
        for _ in range(2):
            with suppress(SessionCacheError):
                while await worker._janitor.compare_sample(10_000) and time.monotonic() < ends:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)  # what was found is put right by workers
            await stage.pause(0.5, 1)
    if stage.mirrors:
        await stage.mirrors.refresh()


# ---- Redis, and both


async def age_redis_beyond_retention(stage: Stage) -> None:
    """Redis comes back with files that are older than the retention of tombstones: what was deleted since is purged."""
    copy = stage.folder / "ancient"
    await in_thread(lambda: shutil.copytree(files_of(stage), copy))
    await stage.pause(3, 6)
    await _purge(stage)
    async with stage.frozen():
        await in_thread(stage.redis.kill)
        shutil.rmtree(files_of(stage))
        shutil.move(copy, files_of(stage))
        await in_thread(stage.redis.start)


async def _purge(stage: Stage) -> None:
    """Weeks pass for the tombstones that there are, and the janitor purges them."""
    for table, column in (("state", "updated_at"), ("session", "flushed_at")):
        ago = _AGES_AGO["postgresql" if stage.postgresql else "sqlite"].format(column)
        aged = f"UPDATE sessioncache_{table} SET {column} = {ago} WHERE deleted"
        await in_thread(lambda aged=aged: execute(stage.database, aged))  # type: ignore[misc]

    async def purged() -> bool:
        with suppress(SessionCacheError):
            async with open_worker(stage.urls) as worker:
                await worker._janitor.purge()
                return True
        return False

    await wait_until_async(purged, _PATIENCE, "the janitor purges")


async def restore_redis_and_say_so(stage: Stage) -> None:
    """Redis comes back older, and the operator, who is not sure which tier it was, runs ``db restored``."""
    copy = stage.folder / "older"
    await in_thread(lambda: shutil.copytree(files_of(stage), copy))
    await stage.pause(2, 5)
    async with stage.frozen():
        await in_thread(stage.redis.kill)
        shutil.rmtree(files_of(stage))
        shutil.move(copy, files_of(stage))
        await in_thread(stage.redis.start)
        await _say_restored(stage)


async def restore_redis_while_it_is_said(stage: Stage) -> None:
    """Redis comes back older while ``db restored`` is at work; the operator runs it again."""
    copy = stage.folder / "oldest"
    await in_thread(lambda: shutil.copytree(files_of(stage), copy))
    await stage.pause(2, 5)
    saying = asyncio.ensure_future(_say_restored(stage, may_fail=True))
    await stage.pause(0.3, 2)  # a second of it is the start of the process
    async with stage.frozen():
        await in_thread(stage.redis.kill)
        shutil.rmtree(files_of(stage))
        shutil.move(copy, files_of(stage))
        await in_thread(stage.redis.start)
    await saying
    await _say_restored(stage)
    await settle(stage)


PUTTING_BACK = [
    Fault("SQL: restored, with db restored", restore_with_command),
    Fault("SQL: restored, with db restored later", restore_with_late_command),
    Fault("SQL: restored, without a word", restore_silently),
    Fault("Redis: older than the tombstones' retention", age_redis_beyond_retention, "alone"),
    Fault("Redis: older, with db restored", restore_redis_and_say_so, "alone"),
    Fault("Redis: older, while db restored works", restore_redis_while_it_is_said, "alone"),
]
