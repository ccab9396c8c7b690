"""Poison: what the database refuses as data is found by bisecting and set apart, the rest is flushed (R10)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sessioncache.durable.errors import RefusedDataError, StaleReadingError
from sessioncache.durable.tier import DurableTier, FlushResult
from sessioncache.entries import Dirt, Entry
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.backlog import Backlog
from sessioncache_worker.batch import halves

logger = logging.getLogger(__name__)


class Bisector:
    """Commits batches; one that is refused is cut down to the entries that are to blame."""

    def __init__(self, durable: DurableTier, backlog: Backlog, *, max_attempts: int) -> None:
        self._durable = durable
        self._backlog = backlog
        self._max_attempts = max_attempts
        self.suspicious = False
        """Whether an error that looks like an outage counts as a refusal, since others can write meanwhile."""
        self.dead: set[str] = set()
        """Scopes with dead letters that were met."""

    async def commit(self, batch: list[Dirt], read_after: int) -> FlushResult:
        """Commit what the database takes; the rest is noted against, and left out of the result."""
        try:
            return await self._durable.flush(batch, read_after=read_after)
        except StaleReadingError:
            logger.warning("%d scopes were read too long ago to be written; they will be read again", len(batch))
            return FlushResult([])
        except RefusedDataError as error:
            return await self._cut(batch, read_after, str(error))
        except DurableTierUnavailableError as error:
            if not self.suspicious or not await self._durable.can_write():
                raise
            return await self._cut(batch, read_after, str(error))

    async def _cut(self, batch: list[Dirt], read_after: int, reason: str) -> FlushResult:
        if len(batch) == 1:
            return await self._cut_scope(batch[0], read_after, reason)
        results = [await self.commit(half, read_after) for half in halves(batch)]
        return FlushResult(
            [one for result in results for one in result.committed],
            {bucket for result in results for bucket in result.fenced},
        )

    async def _cut_scope(self, dirt: Dirt, read_after: int, reason: str) -> FlushResult:
        refused = await self._refused(dirt, dirt.entries, read_after)
        if not refused:
            # Nothing in it is refused by itself: it will be tried again, whole.
            raise DurableTierUnavailableError(f"the database refuses scope {dirt.scope_id} only as a whole: {reason}")
        for entry in refused:
            await self._accuse(dirt, entry, reason)
        names = {entry.key for entry in refused}
        rest = replace(dirt, entries=[entry for entry in dirt.entries if entry.key not in names], left_out=True)
        return await self._durable.flush([rest], read_after=read_after)

    async def _accuse(self, dirt: Dirt, entry: Entry, reason: str) -> None:
        dead = await self._backlog.accuse(dirt, entry.key, entry.revision, reason, attempts=self._max_attempts)
        if dead:
            self.dead.add(dirt.scope_id)
            logger.error("dead letter: the database refuses a key of scope %s (%s)", dirt.scope_id, reason)

    async def _refused(self, dirt: Dirt, entries: Sequence[Entry], read_after: int) -> list[Entry]:
        """The entries that the database refuses, found by trying ever smaller parts and taking them back."""
        if not entries or await self._takes(replace(dirt, entries=list(entries)), read_after):
            return []
        if len(entries) == 1:
            return list(entries)
        middle = len(entries) // 2
        return [
            one for part in (entries[:middle], entries[middle:]) for one in await self._refused(dirt, part, read_after)
        ]

    async def _takes(self, dirt: Dirt, read_after: int) -> bool:
        try:
            await self._durable.rehearse([dirt], read_after=read_after)
        except RefusedDataError:
            return False
        except DurableTierUnavailableError:
            if not self.suspicious or not await self._durable.can_write():
                raise
            return False
        return True
