"""The flush of claimed scopes: read dirt, commit it in one transaction per batch, acknowledge (R6-R10)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import islice

from sessioncache.entries import Committed, Dirt
from sessioncache.hot.calls import Acknowledged, Gone, Need, Unready
from sessioncache.revisions import LARGEST
from sessioncache.settings import WorkerSettings
from sessioncache.tiers import Tiers
from sessioncache_worker.batch import batches
from sessioncache_worker.poison import Bisector

logger = logging.getLogger(__name__)

Claimed = tuple[int, str]
"""Bucket and member of a scope."""

_CLOCK_AGE = 30.0
"""Seconds for which a reading of the database's clock serves as "before the reading of the dirt" (an older one only
makes the dirt count as older than it is)."""
_AHEAD = 2
"""Readings that are under way at once."""


class Flusher:
    """Flushes scopes that one worker has claimed."""

    def __init__(self, tiers: Tiers, settings: WorkerSettings, worker: str) -> None:
        self._tiers = tiers
        self._settings = settings
        self._worker = worker
        self._clock: tuple[float, int] | None = None
        self.bisector = Bisector(tiers.durable, tiers.backlog, max_attempts=settings.max_attempts)

    async def flush(self, claimed: Sequence[Claimed]) -> int:
        """Flush scopes; the number of rows that were acknowledged.

        While SQL commits batches, those after them are read and those before them are acknowledged.
        """
        read_after = await self._clock_before()
        rows = 0
        running: set[asyncio.Future[int]] = set()
        async with aclosing(self._batches(claimed)) as found:
            try:
                async for batch in found:
                    if len(running) >= self._tiers.durable.writers:
                        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                        for one in [one for one in running if one.done()]:
                            rows += one.result()
                            running.discard(one)
                    running.add(asyncio.ensure_future(self._settle_batch(batch, read_after)))
                return rows + sum(await asyncio.gather(*running))
            except asyncio.CancelledError:
                for one in running:
                    one.cancel()
                raise
            finally:
                await asyncio.gather(*running, return_exceptions=True)

    async def _settle_batch(self, batch: list[Dirt], read_after: int) -> int:
        return await self.acknowledge(await self.commit(batch, read_after))

    async def _batches(self, claimed: Sequence[Claimed]) -> AsyncGenerator[list[Dirt], None]:
        """The dirt of scopes in batches; some of it is read ahead."""
        step = max(1, self._settings.batch_rows // 4)
        groups = (claimed[at : at + step] for at in range(0, len(claimed), step))
        readings = deque(asyncio.ensure_future(self.read(group)) for group in islice(groups, _AHEAD))
        rest: list[Dirt] = []
        try:
            while readings:
                dirt = await readings[0]
                readings.popleft()
                readings.extend(asyncio.ensure_future(self.read(group)) for group in islice(groups, 1))
                cut = batches([*rest, *dirt], rows=self._settings.batch_rows, size=self._settings.batch_bytes)
                *full, rest = list(cut) or [[]]
                for batch in full:
                    yield batch
            if rest:
                yield rest
        finally:
            for reading in readings:
                reading.cancel()
            await asyncio.gather(*readings, return_exceptions=True)

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


def _report(one: Committed, done: Acknowledged) -> None:
    """What an acknowledgement found amiss: SQL is newer than the hot tier, or the hot tier lost a field."""
    missing = sum(field.startswith(b"?") for field in done.refused)
    refused = len(done.refused) - missing
    if refused:
        logger.error("SQL has newer rows of scope %s: %d marks are kept", one.dirt.scope_id, refused)
    if missing:
        logger.error("Redis lost %d fields of scope %s that SQL has", missing, one.dirt.scope_id)
