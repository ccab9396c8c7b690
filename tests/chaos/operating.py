"""What operators of a database do to it: rights, locks, space, maintenance, rules of their own, another database."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from sessioncache_worker import FlushWorker

from sessioncache.errors import ConfigurationError, SessionCacheError
from sessioncache.operations.dead_letters import DeadLetter, DeadLetterQueue
from tests.chaos.cast import APP, agents, session_scopes
from tests.chaos.faults import Fault
from tests.chaos.fleet import Member
from tests.chaos.stage import ROLE, Stage, in_thread
from tests.helpers import Urls, connect, execute, fetch, open_worker, upgrade

_UNLIMITED = resource.RLIM_INFINITY
_LEAST = 1024
"""Bytes that a file may have where there is no room."""
_FLUSHED = 30.0
"""Seconds within which what was refused must be flushed once it is not any more."""
_NOTICED = 60.0
"""Seconds within which a worker must find that it has the wrong database."""

_TRIGGER = """
CREATE FUNCTION chaos_{name}() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'chaos' USING ERRCODE = '{state}'; END $$;
CREATE TRIGGER chaos_{name} BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN ({when})
EXECUTE FUNCTION chaos_{name}()
"""
_SQLITE_TRIGGER = """
CREATE TRIGGER chaos_{name}_{event} BEFORE {event} ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, 'chaos'); END
"""
_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_CONTENT = "SELECT count(*), max(revision), sum(revision) FROM sessioncache_state"


@asynccontextmanager
async def _raising(stage: Stage, name: str, state: str, table: str, when: str) -> AsyncIterator[None]:
    """What is written to a table fails with an SQLSTATE, where a condition holds."""
    if stage.postgresql:
        await in_thread(lambda: stage.administer(_TRIGGER.format(name=name, state=state, table=table, when=when)))
    else:
        for event in ("INSERT", "UPDATE"):
            made = _SQLITE_TRIGGER.format(name=name, event=event, table=table, when=when)
            await in_thread(lambda made=made: execute(stage.database, made))  # type: ignore[misc]
    try:
        yield
    finally:
        if stage.postgresql:
            gone = f"DROP TRIGGER chaos_{name} ON {table}; DROP FUNCTION chaos_{name}"
            await in_thread(lambda: stage.administer(gone))
        else:
            for event in ("INSERT", "UPDATE"):
                gone = f"DROP TRIGGER chaos_{name}_{event}"
                await in_thread(lambda gone=gone: execute(stage.database, gone))  # type: ignore[misc]


async def revoke_rights(stage: Stage) -> None:
    """The role of agents and workers may not write state for a while."""
    rights = "INSERT, UPDATE ON sessioncache_state"
    await in_thread(lambda: stage.administer(f"REVOKE {rights} FROM {ROLE}"))
    try:
        await stage.pause(12, 20)
    finally:
        await in_thread(lambda: stage.administer(f"GRANT {rights} TO {ROLE}"))


async def lock_table(stage: Stage) -> None:
    """DDL that takes long, or somebody who forgot to commit, holds a whole table."""
    table = stage.chance.choice(["state", "state", "session", "fence"])
    with await in_thread(lambda: psycopg.connect(stage.database)) as holder:
        await in_thread(lambda: holder.execute(f"LOCK TABLE sessioncache_{table} IN ACCESS EXCLUSIVE MODE".encode()))
        await stage.pause(10, 18)
        holder.rollback()


async def fill_tablespace(stage: Stage) -> None:
    """The tables' disk is full: 53100 for whatever makes them grow."""
    async with _raising(stage, "full", "53100", "sessioncache_state", "true"):
        await stage.pause(6, 14)


async def fill_disk(stage: Stage) -> None:
    """The workers cannot make any file grow."""
    for size in (_LEAST, _UNLIMITED):
        for worker in stage.fleet.workers.values():
            if worker.process.poll() is None:
                resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (size, _UNLIMITED))
        if size == _LEAST:
            await stage.pause(6, 14)


async def forbid_writing(stage: Stage) -> None:
    """The database is set read-only for maintenance: nothing may be written to it until that is taken back."""
    name = (await in_thread(lambda: fetch(stage.database, "SELECT current_database()")))[0][0]
    setting = f"ALTER DATABASE {name} SET default_transaction_read_only = on"
    end = f"SELECT pg_terminate_backend(pid) {_OTHERS}"
    await in_thread(lambda: stage.administer(setting, end))
    try:
        await stage.pause(1, 1)
        before = await in_thread(lambda: fetch(stage.database, _CONTENT))
        await stage.pause(8, 14)
        if await in_thread(lambda: fetch(stage.database, _CONTENT)) != before:
            stage.say("a database that its operator had set read-only was written to")
    finally:
        await in_thread(lambda: stage.administer(f"ALTER DATABASE {name} RESET default_transaction_read_only"))


async def refuse_head(stage: Stage) -> None:
    """A rule of the operator's refuses the heads of one agent's sessions; nobody else may be delayed."""
    agent = stage.chance.choice(agents())
    async with _raising(stage, "head", "23514", "sessioncache_session", f"NEW.session_id LIKE 's-{agent}-%'"):
        await _delays_nobody(stage, "heads of other sessions are refused")
    await _pardon(stage)


async def refuse_rows(stage: Stage) -> None:
    """A rule of the operator's refuses one key of some sessions, which is written anew all the while."""
    ids = ", ".join(f"'{scope.id}'" for scope in stage.chance.sample(list(session_scopes().values()), 4))
    async with _raising(stage, "row", "23514", "sessioncache_state", f"NEW.key = 'k0' AND NEW.scope_id IN ({ids})"):
        await _delays_nobody(stage, "one key is refused")
    await _pardon(stage)


async def _delays_nobody(stage: Stage, what: str) -> None:
    await stage.pause(6, 8)
    if not await stage.bystander.wait_until_durable(15):
        stage.say(f"others' writes were not durable while {what}")
    await stage.pause(0, 4)


async def _pardon(stage: Stage) -> None:
    """What was refused is flushed again, as ``sessioncache dead retry`` does, so that nothing of it is left."""
    ends = time.monotonic() + _FLUSHED
    async with open_worker(stage.urls) as worker:
        box = DeadLetterQueue(worker._tiers)
        while letters := await _retried(worker, box):
            if time.monotonic() > ends:
                stage.say(f"{len(letters)} dead letters are left {_FLUSHED:g} s after nothing is refused any more")
                break


async def _retried(worker: FlushWorker, box: DeadLetterQueue) -> list[DeadLetter]:
    """The dead letters that are left after those there are, and all suspects, were flushed."""
    try:
        for letter in await box.list():
            await box.retry(letter.id)
        await asyncio.wait_for(worker.flush_once(), _FLUSHED)
    except (SessionCacheError, TimeoutError):  # what is being restarted beside
        await asyncio.sleep(1)
    return await box.list()


async def another_database(stage: Stage) -> None:
    """A client and a worker are started with an empty database on the Redis that is in use: they must be refused."""
    urls = Urls(stage.fleet.agents_urls.redis, await _empty_database(stage))
    try:
        async with connect(urls, app=APP) as cache:
            await cache.get("stranger", "none")
        stage.say("a client with another database was let in")
    except ConfigurationError:
        pass
    except SessionCacheError as error:
        if not isinstance(error, ConnectionError):
            stage.say(f"a client with another database was let in, and met {error!r}")
    tiers = ("--redis", urls.redis, "--database", urls.database, "--flush-delay", "0.1")
    worker = await in_thread(lambda: Member("stranger", stage.folder, "sessioncache_worker", *tiers).process)
    try:
        code = await in_thread(lambda: worker.wait(_NOTICED))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        worker.kill()
        worker.wait()
    if code != 2:
        stage.say(f"a worker with another database was let in: {'it ran' if code is None else f'ended with {code}'}")


async def _empty_database(stage: Stage) -> str:
    if stage.postgresql:
        url = stage.postgresql.url(await in_thread(stage.postgresql.create_database))
    else:
        number = len(list(stage.folder.glob("other-*.db")))
        url = f"sqlite:///{stage.folder}/other-{number}.db"
    await upgrade(url)
    return url


def file_of(url: str) -> Path:
    """The file of an SQLite URL."""
    return Path(url.removeprefix("sqlite:///"))


def open_sqlite(url: str) -> sqlite3.Connection:
    """A connection that may be used by any thread, and waits for others."""
    return sqlite3.connect(file_of(url), timeout=30, isolation_level=None, check_same_thread=False)


OPERATING = [
    Fault("SQL: rights revoked", revoke_rights, "postgresql"),
    Fault("SQL: table locked", lock_table, "postgresql"),
    Fault("SQL: tablespace full", fill_tablespace, "postgresql"),
    Fault("SQL: no room for the workers", fill_disk, "sqlite"),
    Fault("SQL: set read-only", forbid_writing, "postgresql"),
    Fault("SQL: a head refused", refuse_head, refuses=True),
    Fault("SQL: a key refused", refuse_rows, refuses=True),
    Fault("SQL: a second database", another_database),
]
