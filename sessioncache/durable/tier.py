"""The durable tier: all calls to the SQL database."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from sessioncache.durable import erasing, fence, flushing, layout, listing, purging, reading
from sessioncache.durable.engine import create_engine, prepare_engine
from sessioncache.durable.errors import RefusedDataError
from sessioncache.durable.flushing import FlushResult
from sessioncache.durable.hang_detection import hearing
from sessioncache.durable.messages import Asked, Owned, Swap, Tombstone
from sessioncache.durable.reading import Evidence
from sessioncache.durable.rights import missing_rights
from sessioncache.durable.transactions import abandonable, finished, tidy_file, writing
from sessioncache.durable.transactions import reading as reading_transaction
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.primitives.cursors import Order, Owner, Position
from sessioncache.primitives.deadline import within
from sessioncache.primitives.entries import Dirt, StoredHead, StoredScope
from sessioncache.primitives.outages import SQL, Outages
from sessioncache.primitives.scopes import ScopeRef
from sessioncache.primitives.signal import Signal
from sessioncache.settings import TOMBSTONE_RETENTION

__all__ = ["Asked", "DurableTier", "Evidence", "FlushResult"]

_PATIENCE = 16
"""Time-outs of a statement that one flush may take in all."""
_LATE = 2.0
"""Seconds after the time-out of a statement by which the server has reported it, unless it hangs."""
_DOUBTFUL = 2.0
"""Seconds after which a call makes it doubtful whether the pooled connections still lead anywhere."""
_TRUSTED = 30.0
"""Seconds for which connections are trusted after that, whatever takes long."""

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[Concatenate["DurableTier", P], Coroutine[Any, Any, T]]


def _whole(call: Call[P, T]) -> Call[P, T]:
    """A call that cannot fail because of the data, and whose outages are logged."""

    @wraps(call)
    async def run(self: DurableTier, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = await self._ended(call(self, *args, **kwargs))
        except RefusedDataError as error:
            raise DurableTierUnavailableError(str(error)) from None
        except DurableTierUnavailableError as error:
            if self.outages is not None and not error._partial:
                self.outages.away(SQL, str(error))
            raise
        if self.outages:
            self.outages.back(SQL)
        return result

    return run


class _TakenBack(Signal):
    """Raised to roll back a transaction."""


class DurableTier:
    """The SQL database behind the hot tier.

    Every call raises DurableTierUnavailableError where the database cannot be reached, a lock is not to be had in
    time or the connection breaks: a call that reads or flushes may simply be repeated.
    """

    def __init__(
        self, engine: AsyncEngine, *, retention: float = TOMBSTONE_RETENTION, lock_timeout: float = 7.0
    ) -> None:
        """Work on an engine that stays the caller's.

        `retention`: seconds for which tombstones are kept.  `lock_timeout`: seconds that a writing transaction may wait
        for a lock, take for a statement, or be idle; below the lease of a claim.
        """
        self.engine = hearing(prepare_engine(engine))
        self.outages: Outages | None = None
        """Logs the outages that the calls meet, if they are to be logged."""
        self._owned = False
        self._doubted = -math.inf
        self._lock_timeout = lock_timeout
        self._max_age = round(retention * 1_000_000 / 2)

    @classmethod
    def connect(cls, url: str, *, retention: float = TOMBSTONE_RETENTION, lock_timeout: float = 7.0) -> Self:
        """Work on an engine of our own, disposed of by `aclose`; connections are made when they are needed."""
        tier = cls(create_engine(url), retention=retention, lock_timeout=lock_timeout)
        tier._owned = True
        return tier

    async def drop_idle(self) -> None:
        """Close the connections that no transaction uses now, if the engine is our own; the pool stays in use."""
        if self._owned:
            await greenlet_spawn(self.engine.pool.dispose)

    @property
    def writers(self) -> int:
        """How many writing transactions of one process are faster than one after another.

        A commit waits for the disk, and PostgreSQL works on another one meanwhile; SQLite admits one at a time.
        """
        return 1 if self.engine.dialect.name == "sqlite" else 2

    async def aclose(self) -> None:
        """Close the connections, if the engine is our own."""
        if self._owned:
            await self.engine.dispose()

    @_whole
    async def clock(self) -> int:
        """The database's clock in microseconds since 1970."""
        async with reading_transaction(self.engine) as connection:
            return await reading.read_clock(connection)

    @_whole
    async def read_layout(self) -> dict[str, str]:
        """Everything that is recorded about the layout."""
        async with reading_transaction(self.engine) as connection:
            return await layout.read_layout(connection)

    @_whole
    async def record_layout(self, values: Mapping[str, str]) -> dict[str, str]:
        """Record each value whose name is absent; everything that is recorded then, whether by this call or
        elsewhere."""
        async with writing(self.engine, self._lock_timeout) as connection:
            return await layout.record_layout(connection, values)

    @_whole
    async def read_fences(self, buckets: Sequence[int]) -> dict[int, str]:
        """The incarnation that each bucket's fence names; absent ones are left out."""
        async with reading_transaction(self.engine) as connection:
            return await fence.read_fences(connection, buckets)

    @_whole
    async def named_by_fences(self, held: Mapping[int, str]) -> dict[int, str]:
        """Those of the incarnations that the fences of their buckets name.

        ConfigurationError for one that was made for another database (R18).
        """
        async with reading_transaction(self.engine) as connection:
            return await fence.named_by_fences(connection, held)

    @_whole
    async def swap_fences(self, changes: Mapping[int, tuple[str | None, str]], *, wait: bool = True) -> dict[int, Swap]:
        """Bucket → (incarnation as read, new one): swap each fence that is still as read, in one transaction (R17).

        `wait`: for fences that other transactions hold; else these count as moved.
        """
        async with writing(self.engine, self._lock_timeout) as connection:
            return await fence.swap_fences(connection, changes, wait=wait)

    @_whole
    async def read_scopes(self, wanted: Sequence[tuple[ScopeRef, str]]) -> list[StoredScope]:
        """Scopes with their incarnations, in one snapshot together with the fences.

        Raises FencedOff, and reads nothing, where a fence does not name the incarnation given.
        """
        async with reading_transaction(self.engine) as connection:
            return await reading.read_scopes(connection, wanted)

    @_whole
    async def read_changes(self, wanted: Sequence[tuple[ScopeRef, str, int]]) -> list[StoredScope]:
        """The changes of scopes above a revision each, deleted rows too, in one snapshot with the fences.

        Only of the first scopes where the changes of all are large; of at least one. Raises FencedOff as `read_scopes`.
        """
        async with reading_transaction(self.engine) as connection:
            return await reading.read_changes(connection, wanted)

    async def flush(self, batch: Sequence[Dirt], *, read_after: int) -> FlushResult:
        """Write a batch in one transaction; `read_after` is this database's clock (µs) from before the reading.

        Raises RefusedDataError (nothing written: the batch contains what the database refuses as data) and
        StaleReadingError (nothing written: read longer ago than half the retention).
        """
        if not batch:
            return FlushResult([])
        with within(_PATIENCE * self._lock_timeout):
            return await self._ended(self._flush(batch, read_after))

    async def _flush(self, batch: Sequence[Dirt], read_after: int) -> FlushResult:
        prepared = flushing.try_prepare(batch)
        async with writing(self.engine, self._lock_timeout) as connection:
            return await flushing.flush(connection, batch, prepared, read_after=read_after, max_age=self._max_age)

    async def rehearse(self, batch: Sequence[Dirt], *, read_after: int) -> None:
        """Do what `flush` does, with its errors, and roll it back."""
        with within(_PATIENCE * self._lock_timeout):
            await self._ended(self._rehearse(batch, read_after))

    async def _rehearse(self, batch: Sequence[Dirt], read_after: int) -> None:
        with suppress(_TakenBack):
            prepared = flushing.try_prepare(batch)
            async with writing(self.engine, self._lock_timeout) as connection:
                await flushing.flush(connection, batch, prepared, read_after=read_after, max_age=self._max_age)
                raise _TakenBack

    async def _ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call: on SQLite to its end, elsewhere until its time is over or the server hangs."""
        if self.engine.dialect.name == "sqlite":
            return await finished(work)
        doubt = asyncio.get_running_loop().call_later(_DOUBTFUL, self._doubt_pooled)
        try:
            return await abandonable(work, self._lock_timeout + _LATE)
        finally:
            doubt.cancel()

    def _doubt_pooled(self) -> None:
        """Have pooled connections closed when they are next used, as SQLAlchemy does when one breaks.

        Some may have lost their server without noticing: each of them would take a call's time to show it.  Not often:
        where a server is only slow, new connections make it slower.
        """
        now = time.monotonic()
        if now >= self._doubted + _TRUSTED:
            self._doubted = now
            self.engine.pool._invalidate(None)  # type: ignore[arg-type]  # of no connection in particular

    @_whole
    async def missing_rights(self) -> list[str]:
        """The rights that our role lacks and agents and workers need, in the words of GRANT."""
        async with reading_transaction(self.engine) as connection:
            return await missing_rights(connection)

    @_whole
    async def note(self, name: str, value: str) -> None:
        """Record something besides the layout, whether its name is there or not."""
        async with writing(self.engine, self._lock_timeout) as connection:
            await layout.note(connection, name, value)

    @_whole
    async def unused_sessions(
        self, app_scope_id: str, before: int, after: tuple[int, str], limit: int, noted: int
    ) -> list[StoredHead]:
        """Living sessions of an app last updated at or before `before` (µs), oldest first, after (updated, id).

        Without those that were recorded as in use later than `noted` (µs).
        """
        async with reading_transaction(self.engine) as connection:
            return await listing.read_heads(connection, listing.unused_query(app_scope_id, before, after, limit, noted))

    @_whole
    async def purge(self, most: int, at: purging.PurgeCursor = purging.BEGINNING) -> purging.Purged:
        """Remove about so many rows of tombstones past the retention, as the next part of a pass (R14)."""
        async with writing(self.engine, self._lock_timeout) as connection:
            return await purging.purge(connection, most, at, older_than=2 * self._max_age)

    @_whole
    async def read_purged(self, buckets: Sequence[int]) -> dict[int, int]:
        """The largest revision that purging ever removed from each bucket; buckets without any are left out (R14)."""
        async with reading_transaction(self.engine) as connection:
            return await purging.read_purged(connection, buckets)

    @_whole
    async def evidence(self, wanted: Sequence[Asked]) -> list[Evidence]:
        """What SQL knows of scopes and of some of their keys, in one snapshot with the fences (R11).

        In their order; of fewer, but of at least one, where that were much at once.
        """
        async with reading_transaction(self.engine) as connection:
            return await reading.read_evidence(connection, wanted)

    @_whole
    async def namespaces(self, session: ScopeRef) -> list[str]:
        """The names of a session's namespaces that have living rows."""
        async with reading_transaction(self.engine) as connection:
            return await reading.read_namespaces(connection, session.id)

    @_whole
    async def named(self, user: ScopeRef, most: int) -> list[ScopeRef]:
        """Some sessions of a user whose names are still there, deleted ones too; none: all are erased."""
        async with reading_transaction(self.engine) as connection:
            return await erasing.read_named(connection, user, most)

    @_whole
    async def erased(self, user: ScopeRef, after: str, most: int) -> list[tuple[str, int]]:
        """Some sessions of a user that are deleted, by id, behind that one, with their revisions."""
        async with reading_transaction(self.engine) as connection:
            return await erasing.read_erased(connection, user, after, most)

    @_whole
    async def owned(self, sessions: Sequence[ScopeRef]) -> list[Owned]:
        """The namespaces that sessions have, with the number of their entries."""
        async with reading_transaction(self.engine) as connection:
            return await erasing.read_owned(connection, sessions)

    @_whole
    async def erase_rows(self, sessions: Sequence[ScopeRef], most: int) -> int:
        """Delete rows of sessions that are deleted hot, at most so many; their number."""
        async with writing(self.engine, self._lock_timeout) as connection:
            return await erasing.erase_rows(connection, sessions, most)

    @_whole
    async def erase(self, user: ScopeRef, revision: int, tombstones: Sequence[Tombstone], incarnation: str) -> None:
        """Erase what a user has at or below `revision`, and these sessions; FencedOff as in `read_scopes`.

        A tombstone at revision 0 is of a session that SQL knows to be deleted: it loses its names.
        """
        async with writing(self.engine, self._lock_timeout) as connection:
            await erasing.erase(connection, user, revision, tombstones, incarnation)

    @_whole
    async def tidy(self) -> None:
        """Leave nothing of erased rows in SQLite's file and its log; nothing to do for another database."""
        await tidy_file(self.engine)

    @_whole
    async def list_sessions(
        self, owner: Owner, order: Order, after: Position | None = None, limit: int | None = None
    ) -> list[StoredHead]:
        """The living sessions of an owner that follow a position, newest first, ties by session id, then scope id."""
        async with reading_transaction(self.engine) as connection:
            return await listing.read_heads(connection, listing.sessions_query(owner, order, after, limit))

    @_whole
    async def find_sessions(self, bare_id: str, app: str | None = None) -> list[StoredHead]:
        """The living sessions of one org (of one app, if given) that have a session id, by app and user."""
        async with reading_transaction(self.engine) as connection:
            return await listing.read_heads(connection, listing.bare_query(bare_id, app))

    @_whole
    async def session_revisions(self, scope_ids: Sequence[str]) -> dict[str, int]:
        """The revisions that the heads of sessions have in SQL, tombstones too; absent ones are left out."""
        async with reading_transaction(self.engine) as connection:
            return await listing.read_revisions(connection, list(scope_ids))
