"""The flush of claimed scopes: read dirt, commit it in one transaction per batch, acknowledge (R6-R10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sessioncache.entries import Committed, Dirt
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.calls import Acknowledged, Gone, Need, Unready
from sessioncache.revisions import LARGEST
from sessioncache.settings import WorkerSettings
from sessioncache.tiers import Tiers
from sessioncache_worker.batch import size_of
from sessioncache_worker.pace import Pace
from sessioncache_worker.poison import Bisector
from sessioncache_worker.reader import Reader

logger = logging.getLogger(__name__)

Claimed = tuple[int, str]
"""Bucket and member of a scope."""

_CLOCK_AGE = 30.0
"""Seconds for which a reading of the database's clock serves as "before the reading of the dirt" (an older one only
makes the dirt count as older than it is)."""


class Flusher:
    """Flushes scopes that one worker has claimed."""

    def __init__(self, tiers: Tiers, settings: WorkerSettings, worker: str) -> None:
        self._tiers = tiers
        self._settings = settings
        self._worker = worker
        self._clock: tuple[float, int] | None = None
        self._pace = Pace(settings.batch_rows, settings.lease / 8)
        self.bisector = Bisector(tiers.durable, tiers.backlog, max_attempts=settings.max_attempts)

    async def flush(self, claimed: Sequence[Claimed]) -> int:
        """Flush scopes; the number of rows that were acknowledged.

        While SQL commits batches, those after them are read and those before them are acknowledged.
        """
        read_after = await self._clock_before()
        limits = {"rows": self._settings.batch_rows, "size": self._settings.batch_bytes}
        free = asyncio.Semaphore(self._tiers.durable.writers)
        flushing: list[asyncio.Future[int]] = []
        async with Reader(self.read, claimed, **limits) as reader:
            try:
                while True:
                    await free.acquire()
                    batch = [] if any(map(_has_failed, flushing)) else await reader.take(self._pace.rows)
                    if not batch:
                        break
                    flushing.append(asyncio.ensure_future(self._flush_batch(batch, read_after, free)))
                return sum(await asyncio.gather(*flushing))
            except asyncio.CancelledError:
                for one in flushing:
                    one.cancel()
                raise
            finally:
                await asyncio.gather(*flushing, return_exceptions=True)

    async def _flush_batch(self, batch: list[Dirt], read_after: int, free: asyncio.Semaphore) -> int:
        """Commit a batch, let the next one follow, and acknowledge it; the number of rows."""
        began = asyncio.get_running_loop().time()
        try:
            committed = await self.commit(batch, read_after)
            self._pace.took(sum(size_of(dirt)[0] for dirt in batch), asyncio.get_running_loop().time() - began)
        except DurableTierUnavailableError:
            self._pace.failed()
            raise
        finally:
            free.release()
        return await self.acknowledge(committed)

    async def read(self, claimed: Sequence[Claimed]) -> list[Dirt]:
        """The dirt of scopes; hashes of an older incarnation are settled first."""
        found = await self._tiers.backlog.read_dirt(claimed)
        unready = {scope: one for scope, one in zip(claimed, found, strict=True) if isinstance(one, Unready)}
        if unready:
            await self._make_ready(unready)
            again = await self._tiers.backlog.read_dirt(list(unready))
            for (bucket, member), one in zip(unready, again, strict=True):
                if isinstance(one, Unready):  # another process is at it: our claim must not hold it back for a lease
                    seconds = 0.1 if one.need is Need.UNFLUSHED else 1.0
                    await self.put_off(bucket, [member], min(seconds, self._settings.lease))
            found += again
        for scope, one in zip([*claimed, *unready], found, strict=True):
            if one is None:
                logger.error("Redis evicted the dirty scope %s: what was not flushed of it is lost", scope[1])
        return [one for one in found if isinstance(one, Dirt)]

    async def commit(self, batch: list[Dirt], read_after: int) -> list[Committed]:
        """Write a batch in one transaction; leave out dirt of buckets whose fence has moved, and register them."""
        result = await self.bisector.commit(batch, read_after)
        if result.fenced:
            logger.warning("%d buckets were taken over by another Redis: registering them again", len(result.fenced))
            await self._tiers.registrar.register(result.fenced)
            for dirt in batch:
                if dirt.bucket in result.fenced:  # to be read again, under the new incarnation
                    await self.put_off(dirt.bucket, [dirt.kind.value + dirt.scope_id], 0.0)
        return result.committed

    async def acknowledge(self, committed: list[Committed]) -> int:
        """Acknowledge what was committed; the number of rows."""
        acknowledged = await self._tiers.backlog.acknowledge(committed, delay=self._settings.flush_delay)
        for one, done in zip(committed, acknowledged, strict=True):
            if done is not None:
                _report(one, done)
        return sum(done.rows for done in acknowledged if done is not None)

    async def put_off(self, bucket: int, members: list[str], seconds: float) -> None:
        """Let the claimed scopes of a bucket be due again in some seconds."""
        await self._tiers.backlog.renew(bucket, self._worker, members, seconds)

    async def _make_ready(self, unready: Mapping[Claimed, Unready]) -> None:
        await self._tiers.registrar.register(
            {place.ref.bucket for why in unready.values() if why.need is Need.REGISTER for place in why.places}
        )
        for scope, why in unready.items():
            with suppress(Unready):  # what came up meanwhile, the next look meets again
                await self._settle(scope, why)

    async def _settle(self, scope: Claimed, why: Unready) -> None:
        """Settle what stands in the way of one scope's dirt."""
        for place in why.places:
            if why.need is Need.REVALIDATE:
                await self._tiers.revalidator.revalidate(place)
            elif why.need is Need.COLD:
                try:
                    await self._tiers.hydrator.hydrate([place])
                except Gone:
                    logger.error("the session of the dirty namespace %s is in neither tier: it is dropped", scope[1])
                    await self._tiers.backlog.scrub(self._tiers.backlog.place(*scope), LARGEST)

    async def _clock_before(self) -> int:
        now = asyncio.get_running_loop().time()
        if self._clock is None or now - self._clock[0] > _CLOCK_AGE:
            self._clock = (now, await self._tiers.durable.clock())
        return self._clock[1]


def _has_failed(batch: asyncio.Future[int]) -> bool:
    return batch.done() and not batch.cancelled() and batch.exception() is not None


def _report(one: Committed, done: Acknowledged) -> None:
    """What an acknowledgement found amiss: SQL is newer than the hot tier, or the hot tier lost a field."""
    missing = sum(field.startswith(b"?") for field in done.refused)
    refused = len(done.refused) - missing
    if refused:
        logger.error("SQL has newer rows of scope %s: %d marks are kept", one.dirt.scope_id, refused)
    if missing:
        logger.error("Redis lost %d fields of scope %s that SQL has", missing, one.dirt.scope_id)
