"""The janitor: the tasks of low priority (retention, purging, retrying dead letters, the audit of both tiers).

Of all workers, one has the turn at a time; what a turn does is small, and a pass over everything takes many turns.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.messages import FencedOff
from sessioncache.durable.purging import BEGINNING, PurgeCursor
from sessioncache.errors import (
    DamagedValueError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    OutcomeUnknownError,
)
from sessioncache.hot.dead_letters import DeadLetters
from sessioncache.operations.audit import compare
from sessioncache.operations.reflush import hot_pages, restore_if_older
from sessioncache.operations.retention import expire
from sessioncache.primitives.deadline import within

logger = logging.getLogger(__name__)

_SAMPLE = 20
"""Scopes that are audited in one turn."""
_PAGES = 50
"""Pages of keys that are scanned for them in one turn: this Redis may hold many other keys."""
_PURGE = 500
"""Most rows that one purging transaction removes."""
_ALL_LETTERS = 10
"""Turns in which the dead letters of all buckets are read once."""
_PASS = 60
"""Turns in which all buckets are searched once for processes that fell silent long ago."""
_RETRIED = 100
"""Dead letters that are retried in one turn at most."""
_LOOKS = 5
"""Successive turns in which a bucket is visited: the time between them makes its idempotency keys older."""
_TIMEOUT = 30.0


class Janitor:
    """Works as long as the worker runs; of all workers, one has the turn at a time."""

    def __init__(self, tiers: Tiers, *, every: float) -> None:
        self._tiers = tiers
        self._every = every
        self._hurried = asyncio.Event()
        # At random: of many workers, each has some of the turns, and may not live long.
        self._next_bucket = self._next_letters = random.randrange(tiers.settings.buckets)
        self._parts: deque[list[int]] = deque(maxlen=_LOOKS)
        self._pages: AsyncIterator[list[tuple[int, str]]] | None = None
        self._found: list[tuple[int, str]] = []

    async def run(self) -> None:
        """Take one turn after the other, until cancelled."""
        while True:
            await self._wait()
            await _each(self.restore, self._take_turn)

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self._every)
        self._hurried.clear()

    async def _take_turn(self) -> None:
        # A little less than a period: the worker that had the turn may take the next one in time.
        if await self._tiers.backlog.take_turn("janitor", self._every * 0.9):
            await self.turn()

    def hurry(self) -> None:
        """Check at once whether SQL came back older than it was."""
        self._hurried.set()

    async def restore(self) -> bool:
        """Have everything hot written again, if SQL came back older than it was and no other process is doing it."""
        done = await restore_if_older(self._tiers)
        if done is not None:
            logger.error(
                "SQL came back older than it was (a restored backup, or a standby that lagged): %d entries of %d hot "
                "scopes are written again; what was not hot is as the database has it",
                done.entries,
                done.scopes,
            )
        return done is not None

    async def turn(self) -> None:
        """Forget silent processes, delete what is past its retention, retry dead letters, purge, and audit a sample.

        What needs Redis alone comes first, and continues while SQL is away.
        """
        await _each(self.forget_silent, self.expire, self.retry_letters, self.purge, self.compare_sample)

    async def expire(self) -> int:
        """Delete the sessions that are past their retention; their number."""
        expired = await expire(self._tiers)
        if expired:
            logger.info("deleted %d sessions that are past their retention", expired)
        return expired

    async def forget_silent(self) -> int:
        """Forget run leases and workers whose processes were killed long ago, in this turn's buckets; their number.

        Also forgets idempotency keys that are over.
        """
        with within(_TIMEOUT):
            return await self._tiers.backlog.forget_silent(self._next_buckets())

    async def retry_letters(self) -> int:
        """Have the due dead letters of the next part of all buckets flushed again; their number."""
        letters, buckets = DeadLetters(self._tiers.link, self._tiers.layout), self._tiers.settings.buckets
        first, self._next_letters = self._next_letters, self._next_letters + math.ceil(buckets / _ALL_LETTERS)
        with within(_TIMEOUT):
            await self._tiers.durable.clock()  # while SQL is away nothing can be retried
            retried = await letters.retry_due([one % buckets for one in range(first, self._next_letters)], _RETRIED)
        if retried:
            logger.info("%d dead letters are tried again", retried)
        return retried

    def _next_buckets(self) -> list[int]:
        """The next buckets of a pass over all, those of the turns before, and the first, in which workers are
        registered."""
        buckets = self._tiers.settings.buckets
        first, self._next_bucket = self._next_bucket, self._next_bucket + math.ceil(buckets / _PASS)
        self._parts.append([bucket % buckets for bucket in range(first, self._next_bucket)])
        return sorted({0, *(bucket for part in self._parts for bucket in part)})

    async def purge(self) -> int:
        """Remove tombstones past their retention; the number of rows."""
        purged = 0
        at: PurgeCursor | None = BEGINNING
        while at is not None:
            with within(_TIMEOUT):
                done = await self._tiers.durable.purge(_PURGE, at)
            purged, at = purged + done.rows, done.following
        if purged:
            logger.info("purged %d tombstones", purged)
        return purged

    async def compare_sample(self, most: int = _SAMPLE) -> int:
        """Audit the next scopes of a pass over all that are hot; the number of those that differ."""
        amiss: int = 0
        for scope in await self._sample(most):
            # What is damaged and dirty is reported by the worker.
            with within(_TIMEOUT), suppress(FencedOff, DamagedValueError):
                amiss += not await compare(self._tiers, *scope)
        return amiss

    async def _sample(self, most: int) -> list[tuple[int, str]]:
        """The next scopes of the pass; fewer at its end, or where they lie among many other keys."""
        for _ in range(_PAGES):
            if len(self._found) >= most:
                break
            self._pages = self._pages or aiter(hot_pages(self._tiers))
            page = await anext(self._pages, None)
            if page is None:
                self._pages = None
                break
            self._found += page
        # A page may bring more than is wanted: the rest is for the next turn.
        sample, self._found = self._found[:most], self._found[most:]
        return sample


async def _each(*duties: Callable[[], Awaitable[object]]) -> None:
    """Do all duties, whatever becomes of the others, so that one that keeps failing does not starve those after it.

    An outage, or a damaged scope, is passed over; the first other error is raised once all are done.
    """
    errors: list[Exception] = []
    for duty in duties:
        try:
            await duty()
        except (HotTierUnavailableError, DurableTierUnavailableError, OutcomeUnknownError, DamagedValueError):
            continue
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
