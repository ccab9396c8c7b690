"""Transactions: one for writing, one for reading a single snapshot, on either database.

What they need from a connection is set per transaction (PostgreSQL) or once per connection (SQLite), so that an engine
which the caller shares with us keeps its own settings.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError, OperationalError, ResourceClosedError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random

from sessioncache.durable.commits import commit
from sessioncache.durable.engine import BUSY_TIMEOUT
from sessioncache.durable.errors import is_inherited, translated
from sessioncache.durable.hang_detection import HangDetection, hear_one
from sessioncache.errors import ConfigurationError, DurableTierUnavailableError
from sessioncache.primitives.deadline import deadline, limited_to

T = TypeVar("T")

_TIMEOUTS = (
    "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', ms, true),"
    " set_config('idle_in_transaction_session_timeout', ms, true) FROM CAST(%s AS text) AS ms"
)
_OF_A_STATEMENT = 0.75
"""The part of its time that a statement may wait for a lock: the lock time-out, not that of the statement, is then
reported."""
_NEW = 1.0
"""Seconds for which a connection is new: what the operator sets for roles and databases has hardly changed since."""
_MARK = "sessioncache_busy_timeout"
VACUUM_BYTES = 128 * 1024 * 1024
"""Largest SQLite file that is rebuilt after an erasure, which takes about a second and blocks writers."""


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even when the caller is cancelled, who then waits for it.

    For SQLite: a driver that is cancelled in the middle of a statement may leave its transaction open, and with it the
    lock of the whole database.  The wait is short: a lock time-out at most.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _wait_out(task, asyncio.get_running_loop().time() + 2 * BUSY_TIMEOUT)
        raise


async def _wait_out(task: asyncio.Future[Any], end: float) -> None:
    """Wait for a task, even if the waiting one is cancelled; a task whose driver never answers is left behind at
    `end`."""
    loop = asyncio.get_running_loop()
    while not task.done() and loop.time() < end:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=end - loop.time())
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.exception()


async def abandonable(work: Coroutine[Any, Any, T], patience: float = math.inf) -> T:
    """Run `work` until the caller's deadline, if there is one; then leave it behind, cancelled.

    Sooner where the database is silent for more than `patience` seconds: within a transaction that writes, or from the
    beginning of one that reads.  For PostgreSQL: a driver that is cancelled asks the server to cancel, and waits long
    for a server that hangs.
    """
    silence = HangDetection(patience)
    with silence.heard():
        task = asyncio.ensure_future(work)
    try:
        await _wait(task, silence)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.done():
        return task.result()
    task.cancel()
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    raise DurableTierUnavailableError("the SQL database did not answer in time")


async def _wait(task: asyncio.Task[Any], silence: HangDetection) -> None:
    while not task.done():
        limit = limited_to()
        seconds = min(math.inf if limit is None else limit, silence.seconds_left())
        if seconds <= 0:
            return
        await asyncio.wait({task}, timeout=None if seconds == math.inf else seconds)


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection, which is not used again once it has answered another statement than the one that was sent.

    Where a call was interrupted within a statement, the driver may have left the answer to it, or to the BEGIN before
    it, unread.  The first statement of each of our transactions returns rows, and finds that answer.
    """
    async with engine.connect() as connection:
        try:
            yield connection
        except ResourceClosedError:
            await connection.invalidate()
            raise DurableTierUnavailableError(
                "the SQL database cannot be used: a connection answered another statement, and is given up"
            ) from None
        except DBAPIError as error:
            if is_inherited(error) and not connection.invalidated:
                _doubt_pooled(connection)
            raise


def _doubt_pooled(connection: AsyncConnection) -> None:
    """Have this connection and the pooled ones closed when they are next used; not where this one is new.

    Settings by ALTER ROLE and ALTER DATABASE apply to a connection from its beginning to its end, and an SQLite file
    that was once opened for reading only stays so: without this, a setting that the operator takes back would remain in
    force.
    """
    pooled = connection.sync_connection.connection if connection.sync_connection else None
    record = getattr(pooled, "_connection_record", None)
    if record is not None and time.time() >= record.starttime + _NEW:
        connection.engine.pool._invalidate(None)  # type: ignore[arg-type]  # of no connection in particular


@asynccontextmanager
async def writing(engine: AsyncEngine, lock_timeout: float | None) -> AsyncIterator[AsyncConnection]:
    """One transaction that writes, committed at the end of the block.

    `lock_timeout` (seconds) bounds each statement and each idle stretch, so that a stopped process holds no rows for
    longer, and a wait for a lock, which ends sooner yet; None: no bound.  SQLite has only the last of the three. Run as
    `abandonable`, it is observed for hangs.
    """
    with translated():
        async with _connected(engine) as connection:
            if engine.dialect.name == "sqlite":
                await _begin_sqlite(connection, "BEGIN IMMEDIATE", lock_timeout)
            else:
                await _begin_postgresql(connection, lock_timeout)
            yield connection
            await commit(connection)


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One transaction that only reads, within the call's deadline; everything read in the block is of one snapshot."""
    with translated():
        # SQLite answers in any case, and must not be cut short (see `finished`).
        limit = None if engine.dialect.name == "sqlite" else deadline()
        async with asyncio.timeout_at(limit), _connected(engine) as connection:
            if engine.dialect.name == "sqlite":
                await _begin_sqlite(connection, "BEGIN", BUSY_TIMEOUT)
            else:
                hear_one()  # the first statement is small; what is read after it may be large
                await connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


async def tidy_file(engine: AsyncEngine) -> None:
    """Leave nothing of erased rows in SQLite's file and write-ahead log; nothing to do for another database.

    A file of more than `VACUUM_BYTES` is not rebuilt: fragments of rows that SQLite moved from page to page may stay.
    DurableTierUnavailableError where others keep using it.
    """
    if engine.dialect.name != "sqlite":
        return
    with translated():
        async with engine.connect() as connection:
            await _prepare_sqlite(connection, BUSY_TIMEOUT)
            size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            if (await connection.exec_driver_sql(size)).scalar_one() <= VACUUM_BYTES:
                await connection.exec_driver_sql("VACUUM")
            busy = (await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
    if busy:
        raise DurableTierUnavailableError("the SQL database cannot be used (its write-ahead log is in use)")


async def _begin_postgresql(connection: AsyncConnection, lock_timeout: float | None) -> None:
    # Whether transactions may write is for the operator to decide: a database that is set read-only is left alone.
    await connection.execution_options(isolation_level="READ COMMITTED")
    if lock_timeout is not None:
        seconds = (_OF_A_STATEMENT * lock_timeout, lock_timeout)
        given = tuple(str(max(1, round(one * 1000))) for one in seconds)
        (await connection.exec_driver_sql(_TIMEOUTS, given)).one()  # an answer without rows is another statement's


async def _begin_sqlite(connection: AsyncConnection, begin: str, lock_timeout: float | None) -> None:
    # An explicit BEGIN comes before anything for which sqlite3 would begin a transaction by itself.
    await _prepare_sqlite(connection, BUSY_TIMEOUT if lock_timeout is None else lock_timeout)
    await connection.exec_driver_sql(begin)


async def _prepare_sqlite(connection: AsyncConnection, busy_timeout: float) -> None:
    raw = await connection.get_raw_connection()
    known = raw.info.get(_MARK)
    if known == busy_timeout:
        return
    await connection.exec_driver_sql(f"PRAGMA busy_timeout = {max(1, round(busy_timeout * 1000))}")
    if known is None:
        await _use_wal(connection)
        await connection.exec_driver_sql("PRAGMA synchronous = FULL")
        # Replaced and deleted rows are overwritten in the file, so that nothing of an erased user stays in it.
        await connection.exec_driver_sql("PRAGMA secure_delete = ON")
    raw.info[_MARK] = busy_timeout


async def _use_wal(connection: AsyncConnection) -> None:
    """Switch to WAL; SQLite's busy handler does not cover two processes that switch at once."""
    async for attempt in AsyncRetrying(
        stop=stop_after_delay(BUSY_TIMEOUT),
        wait=wait_random(0.01, 0.1),
        retry=retry_if_exception_type(OperationalError),
        reraise=True,
    ):
        with attempt:
            mode = (await connection.exec_driver_sql("PRAGMA journal_mode = WAL")).scalar_one()
    if mode != "wal":
        raise ConfigurationError(f"SQLite keeps journal mode {mode!r} where WAL is needed: use a file on a local disk")
