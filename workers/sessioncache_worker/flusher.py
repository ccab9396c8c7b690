"""The flush of claimed scopes: read what is dirty, commit it in one transaction a batch, acknowledge it (R6-R10).

What takes long or may fail for the sake of one scope is handed to `isolation`, so that other scopes do not wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.errors import RefusedDataError, StaleReadingError
from sessioncache.durable.tier import FlushResult
from sessioncache.errors import DamagedValueError, DurableTierUnavailableError
from sessioncache.hot.backlog import ANY_SIZE, Reading
from sessioncache.hot.messages import Acknowledged, Damaged, Large
from sessioncache.hot.signals import Gone, Need, Unready
from sessioncache.primitives.deadline import within
from sessioncache.primitives.entries import Committed, Dirt
from sessioncache.primitives.revisions import LARGEST
from sessioncache.primitives.scopes import ScopeKind
from sessioncache.settings import WorkerSettings
from sessioncache_worker.batch import size_of
from sessioncache_worker.batch_size import BatchSize
from sessioncache_worker.claims import Claimed, HeldClaims
from sessioncache_worker.isolation import Isolation
from sessioncache_worker.poison_messages import Bisector
from sessioncache_worker.read_ahead import Reader

__all__ = ["Claimed", "Flusher"]

logger = logging.getLogger(__name__)

_ROUNDS = 3
"""Rounds in which what keeps dirty fields from being read (an incarnation, a missing session) is settled, at most."""
_CLOCK_AGE = 30.0
"""Seconds for which a reading of the database's clock counts as "before the dirty fields were read" (an older one only
makes these count as older than they are)."""
_SOON = 1.0
"""Seconds after which what could not be settled is due again."""


class Flusher:
    """Flushes scopes that one worker has claimed."""

    def __init__(self, tiers: Tiers, settings: WorkerSettings, worker: str) -> None:
        self._tiers = tiers
        self._settings = settings
        self._clock: tuple[float, int] | None = None
        self._batch_size = BatchSize(settings.batch_rows, settings.lease / 8)
        self._free = asyncio.Semaphore(tiers.durable.writers)
        """Transactions of batches that may be under way at the same time."""
        self._beside: AbstractAsyncContextManager[None] = self._free if tiers.durable.writers == 1 else nullcontext()
        """Limits what `isolation` tries beside them, one part a lane, where the database admits one transaction at a
        time."""
        self.held_claims = HeldClaims(tiers.backlog, worker, settings.lease)
        self.isolation = Isolation(self.flush_part, self.held_claims)
        self._bisector = Bisector(
            tiers.durable,
            tiers.backlog,
            max_attempts=settings.max_attempts,
            refused=lambda dirt: self.isolation.note_refusal(_scope_of(dirt)),
        )
        self.hurry: Callable[[], None] = lambda: None
        """Called when SQL was found to have come back older than it was."""
        self.unregistered: Callable[[Collection[int]], None] = lambda _: None
        """Called with buckets that have to be registered before they can be flushed."""

    async def flush(self, claimed: Sequence[Claimed], *, patient: bool = True) -> int:
        """Flush scopes; the number of rows that were acknowledged.

        While SQL commits batches, those after them are read and those before them are acknowledged.  What takes long,
        or may fail for the sake of one scope, is handled by `isolation`, and waited for if `patient`.  An outage of the
        whole database is raised.
        """
        self.held_claims.take(claimed)
        before = self.isolation.rows
        # R10: a scope that failed lately would most likely fail the whole batch that it came into.
        ailing = dict.fromkeys(scope for scope in claimed if self.isolation.knows(scope))
        await self.isolation.look_into(list(ailing), known=True)
        sound = [scope for scope in claimed if scope not in ailing] if ailing else claimed
        rows = await self._flush_all(sound) if sound else 0
        if patient:
            await self.isolation.finished()
        if error := self.isolation.take_error():
            raise error
        return rows + self.isolation.rows - before

    async def _flush_all(self, claimed: Sequence[Claimed]) -> int:
        read_after = await self._clock_before()
        limits = {"rows": self._settings.batch_rows, "size": self._settings.batch_bytes}
        flushing: list[asyncio.Future[int]] = []
        async with Reader(self.look, claimed, **limits) as reader:
            try:
                while batch := await self._next_batch(reader, flushing):
                    flushing.append(asyncio.ensure_future(self._flush_batch(batch, read_after)))
                return sum(await asyncio.gather(*flushing))
            except asyncio.CancelledError:
                for one in flushing:
                    one.cancel()
                raise
            finally:
                await asyncio.gather(*flushing, return_exceptions=True)

    async def _next_batch(self, reader: Reader, flushing: Sequence[asyncio.Future[int]]) -> list[Dirt]:
        """What goes into the transaction that is free now; nothing after one that failed."""
        await self._free.acquire()
        try:
            while not any(map(_has_failed, flushing)):
                batch = await reader.take(self._batch_size.rows)
                if len(batch) != 1 or size_of(batch[0])[0] <= self._settings.batch_rows:
                    break
                await self.isolation.look_into([_scope_of(batch[0])], known=True)  # others do not wait
            else:
                batch = []
        except BaseException:
            # Nobody else would free the place of a batch that was never begun.
            self._free.release()
            raise
        if not batch:
            self._free.release()
        return batch

    async def _flush_batch(self, batch: list[Dirt], read_after: int) -> int:
        """Commit a batch, let the next one follow, and acknowledge it; the number of rows."""
        began = asyncio.get_running_loop().time()
        try:
            committed = await self.commit(batch, read_after)
            self.isolation.went_through()
            self._batch_size.took(sum(size_of(dirt)[0] for dirt in batch), asyncio.get_running_loop().time() - began)
        except (DamagedValueError, DurableTierUnavailableError, RefusedDataError) as error:
            if isinstance(error, DurableTierUnavailableError):
                self._batch_size.failed()
                # An outage of the whole is no reason to try parts: every one of them would meet it as well.
                if not error._partial:
                    raise
            await self.isolation.look_into([_scope_of(dirt) for dirt in batch])
            return 0
        finally:
            self._free.release()
        return await self._settle(batch, committed)

    async def flush_part(self, scopes: Sequence[Claimed]) -> int:
        """Flush some scopes together; a lone one without what the database refuses as data."""
        async with self._beside:  # before the reading: what waits may be as large as a scope
            read_after = await self._clock_before()
            batch = await self.read(scopes)
            if not batch:
                return 0
            if len(batch) == 1:
                committed = await self._taken(self._bisector.commit(batch[0], read_after), batch)
            else:
                committed = await self.commit(batch, read_after)
        return await self._settle(batch, committed)

    async def _settle(self, batch: Sequence[Dirt], committed: list[Committed]) -> int:
        """Acknowledge what was committed; what else was in the batch is due again soon."""
        # Whatever of the batch was neither acknowledged nor given back may be dirty still.
        rows = await self.acknowledge(committed)
        left = self.held_claims.of([_scope_of(dirt) for dirt in batch])
        if left:
            await self.held_claims.put_off(left, min(_SOON, self._settings.lease))
        return rows

    async def read(self, claimed: Sequence[Claimed]) -> list[Dirt]:
        """What is dirty in scopes, however large."""
        return [one for one in await self.look(claimed, ANY_SIZE) if isinstance(one, Dirt)]

    async def look(self, claimed: Sequence[Claimed], most: int) -> list[Dirt | Large]:
        """What is dirty in scopes, or its size if that is above `most`; hashes of an older incarnation are settled
        first.

        Scopes that are damaged in Redis are set apart.
        """
        found = await self._tiers.backlog.read_dirt(claimed, most)
        readings = dict(zip(claimed, found, strict=True))
        for _ in range(_ROUNDS):  # a namespace needs its session first
            unready = _unready(readings)
            if not unready:
                break
            readings |= await self._make_ready(unready)
            ready = [scope for scope in unready if isinstance(readings[scope], Unready)]
            readings |= zip(ready, await self._tiers.backlog.read_dirt(ready, most), strict=True)
        for scope, why in _unready(readings).items():
            # Another process works on it: our claim must not hold it back for a whole lease.
            seconds = 0.1 if why.need is Need.UNFLUSHED else _SOON
            await self.held_claims.put_off([scope], min(seconds, self._settings.lease))
        for scope, one in readings.items():
            if one is None:
                logger.error("Redis evicted the dirty scope %s: what was not flushed of it is lost", scope[1])
            if isinstance(one, Damaged):
                await self.isolation.set_apart(scope, one.cause, is_damaged=True)
            elif not isinstance(one, (Dirt, Large, Unready)):  # nothing of it is dirty any more
                self.held_claims.done_with([scope])
        return [one for one in readings.values() if isinstance(one, (Dirt, Large))]

    async def commit(self, batch: list[Dirt], read_after: int) -> list[Committed]:
        """Write a batch in one transaction; leave out scopes of buckets whose fence has moved, and register these
        buckets."""
        return await self._taken(self._tiers.durable.flush(batch, read_after=read_after), batch)

    async def _taken(self, flushing: Awaitable[FlushResult], batch: Sequence[Dirt]) -> list[Committed]:
        """What was committed, after everything else that became of the batch has been handled."""
        try:
            result = await flushing
        except StaleReadingError:
            # R14: a worker that was paused must not bring back what was deleted and purged since.
            logger.warning("%d scopes were read too long ago to be written; they will be read again", len(batch))
            return []
        if result.fenced:
            # They are put off, and read again under the new incarnation; the others of the batch do not wait for them.
            logger.warning("%d buckets were taken over by another Redis: registering them again", len(result.fenced))
            self.unregistered(result.fenced)
        if result.forgotten:
            await self._forgot(result.forgotten)
        return result.committed

    async def _forgot(self, dirt: Sequence[Dirt]) -> None:
        """SQL came back older than it was: these scopes are settled first, then everything that is hot (R18)."""
        logger.error(
            "SQL has less than was flushed of %d scopes: nothing of them is written before that is settled", len(dirt)
        )
        for one in dirt:
            # A namespace lives in its session: both are compared with SQL before either is used again.
            members = [one.member, *([ScopeKind.SESSION.value + one.holder] if one.holder else [])]
            for member in members:
                await self._tiers.merging.mark_stale(self._tiers.backlog.place(one.bucket, member))
        await self.held_claims.give_back([_scope_of(one) for one in dirt])
        await self._tiers.backlog.note_older()
        self.hurry()

    async def acknowledge(self, committed: list[Committed]) -> int:
        """Acknowledge what was committed; the number of rows."""
        acknowledged = await self._tiers.backlog.acknowledge(committed, delay=self._settings.flush_delay)
        rows = 0
        for one, done in zip(committed, acknowledged, strict=True):
            if isinstance(done, Damaged):
                await self.isolation.set_apart(_scope_of(one.dirt), done.cause, is_damaged=True)
            # None: the incarnation has changed since the reading, so that nothing was acknowledged (R8).
            elif done is not None:
                self.held_claims.done_with([_scope_of(one.dirt)])
                _report(one, done)
                rows += done.rows
        return rows

    async def _make_ready(self, unready: Mapping[Claimed, Unready]) -> dict[Claimed, Damaged]:
        """Settle what keeps dirty fields from being read; the scopes for which nothing can be done."""
        self.unregistered(
            {place.ref.bucket for why in unready.values() if why.need is Need.REGISTER for place in why.places}
        )
        stale = {scope: place for scope, why in unready.items() if why.need is Need.REVALIDATE for place in why.places}
        unique = list({place.hash: place for place in stale.values()}.values())
        damaged = await self._tiers.revalidator.revalidate_all(unique)
        found = {scope: damaged[place.hash] for scope, place in stale.items() if place.hash in damaged}
        for scope, why in unready.items():
            if why.need is Need.COLD:
                try:
                    await self._load_host(scope, why)
                except Unready:
                    pass  # what comes up meanwhile is met by the next round
                except DamagedValueError as error:
                    found[scope] = Damaged(str(error))
        return found

    async def _load_host(self, scope: Claimed, why: Unready) -> None:
        """Load the session of a dirty namespace."""
        try:
            await self._tiers.hydrator.hydrate(why.places)
        except Gone:
            logger.error("the session of the dirty namespace %s is in neither tier: it is dropped", scope[1])
            await self._tiers.backlog.scrub(self._tiers.backlog.place(*scope), LARGEST)

    async def _clock_before(self) -> int:
        now = asyncio.get_running_loop().time()
        if self._clock is None or now - self._clock[0] > _CLOCK_AGE:
            with within(self._settings.lease):
                self._clock = (now, await self._tiers.durable.clock())
        return self._clock[1]


def _scope_of(dirt: Dirt) -> Claimed:
    return dirt.bucket, dirt.kind.value + dirt.scope_id


def _unready(readings: Mapping[Claimed, Reading]) -> dict[Claimed, Unready]:
    return {scope: one for scope, one in readings.items() if isinstance(one, Unready)}


def _has_failed(batch: asyncio.Future[int]) -> bool:
    return batch.done() and not batch.cancelled() and batch.exception() is not None


def _report(one: Committed, done: Acknowledged) -> None:
    """Log what an acknowledgement found: SQL is newer than the hot tier, or the hot tier lost a field."""
    missing = sum(field.startswith(b"?") for field in done.refused)
    refused = len(done.refused) - missing
    if refused:
        logger.error("SQL has newer rows of scope %s: %d marks are kept", one.dirt.scope_id, refused)
    if missing:
        logger.error("Redis lost %d fields of scope %s that SQL has", missing, one.dirt.scope_id)
