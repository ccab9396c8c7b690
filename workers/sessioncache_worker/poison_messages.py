"""Poison messages: what the database refuses as data is found by bisecting, and the rest of its scope is flushed
(R10)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from sessioncache.durable.errors import RefusedDataError
from sessioncache.durable.tier import DurableTier, FlushResult
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.backlog import Backlog
from sessioncache.primitives.entries import Dirt, Entry

logger = logging.getLogger(__name__)


class Bisector:
    """Commits scopes; one that is refused is bisected down to the entries, or the head, to blame."""

    def __init__(
        self, durable: DurableTier, backlog: Backlog, *, max_attempts: int, refused: Callable[[Dirt], None]
    ) -> None:
        """`refused` is called with each scope of which something is refused."""
        self._durable = durable
        self._tell = refused
        self._backlog = backlog
        self._max_attempts = max_attempts

    async def commit(self, dirt: Dirt, read_after: int) -> FlushResult:
        """Commit what the database accepts of one scope; for the rest a failure is recorded, and the result leaves it
        out."""
        try:
            return await self._durable.flush([dirt], read_after=read_after)
        except RefusedDataError as error:
            reason = str(error)
        self._tell(dirt)
        # No row of the scope can be written without its head: then the entries need not be tried.
        if not await self._takes(replace(dirt, entries=[]), read_after):
            await self._accuse(await self._refused_head(dirt, read_after), None, reason)
            return FlushResult([])
        refused = await self._refused(dirt, dirt.entries, read_after)
        if not refused:
            # Nothing in it is refused by itself: the whole scope is retried later.
            told = f"the database refuses scope {dirt.scope_id} only as a whole: {reason}"
            raise DurableTierUnavailableError(told, _partial=True)
        for entry in refused:
            await self._accuse(dirt, entry, reason)
        names = {entry.key for entry in refused}
        # `left_out` keeps the acknowledgement from raising the flush watermark past what was refused (R8).
        rest = replace(dirt, entries=[entry for entry in dirt.entries if entry.key not in names], left_out=True)
        return await self._durable.flush([rest], read_after=read_after)

    async def _accuse(self, dirt: Dirt, entry: Entry | None, reason: str) -> None:
        if await self._backlog.record_failure(dirt, entry, reason, attempts=self._max_attempts):
            what = "a key" if entry else "the head"
            logger.error("dead letter: the database refuses %s of scope %s (%s)", what, dirt.scope_id, reason)

    async def _refused_head(self, dirt: Dirt, read_after: int) -> Dirt:
        """The scope whose head is refused: a namespace is written with its session's head and a record of its own."""
        if not dirt.holder or await self._takes(dirt.host, read_after):
            return dirt
        return dirt.host

    async def _refused(self, dirt: Dirt, entries: Sequence[Entry], read_after: int) -> list[Entry]:
        """The entries that the database refuses, found by trial transactions of ever smaller parts, all rolled back."""
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
        return True
