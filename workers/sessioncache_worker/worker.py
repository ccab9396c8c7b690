"""The worker: claims due scopes of all buckets, has them flushed, and says that it lives."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tenacity import wait_random_exponential

from sessioncache.deadline import within
from sessioncache.durable.errors import RefusedDataError
from sessioncache.durable.tier import DurableTier
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError, MemoryFullError
from sessioncache.hot.link import HotLink
from sessioncache.hot.sweep import Sweep
from sessioncache.settings import CacheSettings, WorkerSettings
from sessioncache.tiers import Tiers
from sessioncache_worker.agenda import Agenda
from sessioncache_worker.flusher import Claimed, Flusher
from sessioncache_worker.janitor import Janitor
from sessioncache_worker.wake import listen

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from sqlalchemy.ext.asyncio import AsyncEngine

logger = logging.getLogger(__name__)

_SCOPES_AT_ONCE = 512
"""Most scopes that a worker claims in one go, if no bucket gives it fewer than _OF_A_BUCKET."""
_OF_A_BUCKET = 8
"""Scopes of each bucket that are claimed at least: a few thousand in all, flushed well within a lease."""
_BUCKETS_AT_ONCE = 256
_HEARTBEAT = 5.0
"""Seconds between two heartbeats."""
_AWAY = (HotTierUnavailableError, DurableTierUnavailableError, MemoryFullError)
"""What a worker outlives, however long it lasts."""
_TIMEOUT = 5.0
"""Seconds an exchange with Redis may take."""


class FlushWorker:
    """A flush worker; any number of them may run at once, and any of them may die at any point.

    ``async with FlushWorker(redis, engine) as worker`` runs it in the background until the block ends;
    `run` runs it until `stop`, `flush_once` flushes what is dirty now.
    """

    def __init__(self, redis: Redis, engine: AsyncEngine, **settings: Any) -> None:
        """A worker over the caller's `redis.asyncio.Redis` and `AsyncEngine`, with settings of `WorkerSettings`."""
        options = WorkerSettings.of(settings)
        # SQL gives a stopped worker's locks free well before its lease is over (R9).
        durable = DurableTier(engine, lock_timeout=options.lease / 2)
        self._set_up(HotLink(redis, owned=False), durable, options)

    @classmethod
    def over(cls, link: HotLink, durable: DurableTier, settings: WorkerSettings) -> Self:
        """A worker over a link and a durable tier of ours."""
        worker = cls.__new__(cls)
        worker._set_up(link, durable, settings)
        return worker

    def _set_up(self, link: HotLink, durable: DurableTier, settings: WorkerSettings) -> None:
        self.settings = settings
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        cache = CacheSettings.of(
            {"prefix": settings.prefix, "buckets": settings.buckets, "idle_ttl": settings.idle_ttl, "timeout": _TIMEOUT}
        )
        self._tiers = Tiers(link, durable, cache)
        self.flusher = Flusher(self._tiers, settings, self.name)
        self._janitor = Janitor(self._tiers, every=settings.janitor)
        self._agenda = Agenda()
        self._sweeper = Sweep(link, self._tiers.layout)
        self._buckets = range(settings.buckets)
        self._woken = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._held: set[Claimed] = set()
        self._failures = 0

    # ---- running

    async def run(self) -> None:
        """Flush what becomes due, until `stop`; survives outages of both tiers."""
        helpers = [
            asyncio.ensure_future(job)
            for job in (self._listen(), self._beat(), self._sweep(), self._renew(), self._janitor.run())
        ]
        pauses = wait_random_exponential(multiplier=0.1, max=5)
        failures = 0
        try:
            while not self._stopping:
                try:
                    await self._check()
                    await self._work()
                    failures = 0
                except (*_AWAY, RefusedDataError) as error:
                    failures += 1
                    logger.warning("a tier is away, trying again: %s", error)
                    await self._pause(pauses(_Attempt(failures)))  # type: ignore[arg-type]
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            with suppress(HotTierUnavailableError):
                await self._tiers.backlog.beat(self.name, "", ended=True)

    def stop(self) -> None:
        """Stop claiming; `run` returns when what is claimed has been flushed."""
        self._stopping = True
        self._woken.set()

    async def flush_once(self) -> int:
        """Flush all that is dirty now, whether due or not; the number of rows.

        Waits for scopes that another worker holds.  What the database refuses as data becomes dead letters
        (`flusher.bisector.dead`).
        """
        await self._check()
        began = await self._redis_time()
        rows = 0
        while True:
            claimed = await self._claim(list(self._buckets), everything=True)
            flushed = await self._flush(claimed)
            rows += flushed
            oldest = await self._tiers.backlog.oldest(self._buckets)
            if oldest is None or oldest > began:
                return rows
            if not flushed:
                await asyncio.sleep(0.05)

    async def _check(self) -> None:
        if not self._tiers.installation.checked:
            with within(_TIMEOUT):
                await self._tiers.installation.check()

    async def _work(self) -> None:
        """One round: look at the buckets that are due, or wait until one is."""
        loop = asyncio.get_running_loop()
        due = self._agenda.due(loop.time(), _BUCKETS_AT_ONCE)
        if due:
            await self._flush(await self._claim(due))
            return
        await self._pause(self._agenda.seconds_to_next(loop.time()))

    async def _pause(self, seconds: float | None) -> None:
        self._woken.clear()
        if self._stopping:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)

    # ---- claiming and flushing

    async def _claim(self, buckets: list[int], *, everything: bool = False) -> list[Claimed]:
        most = max(_OF_A_BUCKET, _SCOPES_AT_ONCE // len(buckets))
        began = asyncio.get_running_loop().time()
        claims = await self._tiers.backlog.claim(
            buckets,
            self.name,
            lease=self.settings.lease,
            delay=self.settings.flush_delay,
            most=most,
            everything=everything,
        )
        claimed: list[Claimed] = []
        for bucket, found in claims.items():
            self._agenda.note(bucket, found.wait if found else 0.0, began)
            claimed += [(bucket, member) for member in found.members] if found else []
        self._held.update(claimed)
        try:
            await self._tiers.registrar.register(bucket for bucket, found in claims.items() if found is None)
        except (HotTierUnavailableError, DurableTierUnavailableError):
            self._held.clear()
            await self._give_back(claimed)
            raise
        return claimed

    async def _flush(self, claimed: list[Claimed]) -> int:
        if not claimed:
            return 0
        try:
            rows = await self.flusher.flush(claimed)
        except _AWAY as error:
            self._held.clear()
            await self._give_back(claimed)
            await self._suspect(error)
            raise
        self._held.clear()
        self._failures, self.flusher.bisector.suspicious = 0, False
        now = asyncio.get_running_loop().time()
        for bucket in {bucket for bucket, _ in claimed}:
            self._agenda.announce(bucket, now + self.settings.flush_delay)
        return rows

    async def _suspect(self, error: Exception) -> None:
        """An outage that lasts while others can write is no outage: the batch is searched for what causes it (R10)."""
        if isinstance(error, DurableTierUnavailableError):
            self._failures += 1
            if self._failures >= self.settings.max_attempts:
                self.flusher.bisector.suspicious = await self._tiers.durable.can_write()

    async def _give_back(self, claimed: list[Claimed]) -> None:
        """Let what could not be flushed be due again soon, here or at another worker."""
        with suppress(HotTierUnavailableError):
            for bucket in {bucket for bucket, _ in claimed}:
                members = [member for b, member in claimed if b == bucket]
                await self.flusher.put_off(bucket, members, min(1.0, self.settings.lease))
                self._agenda.announce(bucket, asyncio.get_running_loop().time())

    # ---- beside the work

    async def _listen(self) -> None:
        """Hear of buckets that got their first dirt."""

        def heard(bucket: int | None) -> None:
            now = asyncio.get_running_loop().time()
            for one in self._buckets if bucket is None else (bucket,):
                self._agenda.announce(one, now)
            self._woken.set()

        await listen(self._tiers.link, self._tiers.layout, heard)

    async def _beat(self) -> None:
        about = json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
        while True:
            with suppress(HotTierUnavailableError):
                await self._tiers.backlog.beat(self.name, about)
            await asyncio.sleep(_HEARTBEAT)

    async def _sweep(self) -> None:
        """Look for dirt in all buckets now and then, in case an announcement was missed."""
        while True:
            await asyncio.sleep(self.settings.sweep)
            with suppress(HotTierUnavailableError):
                now = asyncio.get_running_loop().time()
                found = await self._sweeper.dirty(self._buckets)
                for bucket in found:
                    self._agenda.announce(bucket, now)
                if found:
                    self._woken.set()

    async def _renew(self) -> None:
        """Keep the lease of what takes long."""
        while True:
            await asyncio.sleep(self.settings.lease / 3)
            held = list(self._held)
            with suppress(HotTierUnavailableError):
                for bucket in {bucket for bucket, _ in held}:
                    members = [member for b, member in held if b == bucket]
                    await self._tiers.backlog.renew(bucket, self.name, members, self.settings.lease)

    async def _redis_time(self) -> int:
        seconds, micros = await self._tiers.link.command(b"TIME")
        return int(seconds) * 1_000_000 + int(micros)

    # ---- as a context manager

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await self._task
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections made over the caller's client."""
        await self._tiers.aclose()


class _Attempt:
    """What tenacity's waits want to know of the attempts so far."""

    def __init__(self, attempt_number: int) -> None:
        self.attempt_number = attempt_number
