"""The worker: claims due scopes of all buckets, has them flushed, and reports that it is alive.

A worker needs no coordinator: claims expire, so that any other worker takes over what a killed one had claimed (R9).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import socket
import traceback
from collections.abc import Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tenacity import wait_random_exponential

from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.errors import LOGIN, RIGHTS
from sessioncache.durable.tier import DurableTier
from sessioncache.errors import (
    ConfigurationError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    SchemaVersionError,
    SessionCacheError,
)
from sessioncache.hot.client import HotClient
from sessioncache.hot.dead_letters import DeadLetters
from sessioncache.hot.errors import damaged
from sessioncache.hot.messages import Damaged
from sessioncache.hot.poll import Poll
from sessioncache.primitives.deadline import within
from sessioncache.primitives.outages import REDIS, SQL, Outages
from sessioncache.primitives.units import counted
from sessioncache.settings import CacheSettings, WorkerSettings
from sessioncache_worker.background_tasks import BackgroundTasks
from sessioncache_worker.flusher import Claimed, Flusher
from sessioncache_worker.janitor import Janitor
from sessioncache_worker.notifications import listen
from sessioncache_worker.registration import Registration
from sessioncache_worker.schedule import Schedule

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from sqlalchemy.ext.asyncio import AsyncEngine

logger = logging.getLogger(__name__)

_SCOPES_AT_ONCE = 512
"""Most scopes that a worker claims at once, if no bucket gives it fewer than _OF_A_BUCKET."""
_OF_A_BUCKET = 8
"""Scopes of each bucket that are claimed at least: a few thousand in all, flushed well within a lease."""
_BUCKETS_AT_ONCE = 256
_HEARTBEAT = 5.0
"""Seconds between two heartbeats."""
_SOON = 1.0
"""Seconds after which what was given back is due again."""
_AILING_TOLD = 5
"""Scopes that cannot be flushed which a heartbeat names."""
_TIMEOUT = 5.0
"""Seconds an exchange with Redis may take."""
_LEASES = 3
"""Leases for which other workers are waited for: claims of a killed one expire within one, what it put off within
two."""


class _Standstill:
    """For how long the oldest dirty scope of all has been the same."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._oldest: int | None = None
        self._ends = math.inf

    def is_over(self, oldest: int | None) -> bool:
        """Whether it has been the same for too long; None: there was progress."""
        now = asyncio.get_running_loop().time()
        if oldest is None or oldest != self._oldest:
            self._oldest, self._ends = oldest, now + self._seconds
        return now > self._ends


class FlushWorker:
    """A flush worker; any number of them may run at once, and any of them may die at any point.

    ``async with FlushWorker(redis, engine) as worker`` runs it in the background until the block ends; `run` runs it
    until `stop`, `flush_once` flushes what is dirty now.
    """

    def __init__(self, redis: Redis, engine: AsyncEngine, **settings: Any) -> None:
        """A worker over the caller's `redis.asyncio.Redis` and `AsyncEngine`; nothing is sent before it runs.

        Settings are those of `WorkerSettings`.

        Raises:
            ConfigurationError: A setting is unknown or has no usable value, or the client or engine cannot be used.
        """
        options = WorkerSettings.of(settings)
        # SQL frees the locks of a stopped worker well before its lease is over (R9).
        durable = DurableTier(engine, lock_timeout=options.lease / 2)
        self._set_up(HotClient(redis, owned=False), durable, options)

    @classmethod
    def over(cls, link: HotClient, durable: DurableTier, settings: WorkerSettings) -> Self:
        """A worker over a client and a durable tier of our own."""
        worker = cls.__new__(cls)
        worker._set_up(link, durable, settings)
        return worker

    def _set_up(self, link: HotClient, durable: DurableTier, settings: WorkerSettings) -> None:
        self.settings = settings
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        cache = CacheSettings.of({"prefix": settings.prefix, "buckets": settings.buckets, "timeout": _TIMEOUT})
        self._tiers = Tiers(link, durable, cache, idle_ttl=settings.idle_ttl, tells=False)
        self.flusher = Flusher(self._tiers, settings, self.name)
        self.flusher.held_claims.due = self._look_again
        self._janitor = Janitor(self._tiers, every=settings.janitor)
        self.flusher.hurry = self._janitor.hurry
        self._schedule = Schedule()
        self._sweeper = Poll(link, self._tiers.layout)
        self._buckets = range(settings.buckets)
        self._woken = asyncio.Event()
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._helpers: BackgroundTasks | None = None
        self._outages = Outages(logger)
        self._registration = Registration(self._tiers.fencing, self._registered, self._note_unregistered)
        self.flusher.unregistered = self._registration.want
        self.unfinished = False
        """Whether `run` ended at the end of the grace time, with something begun and not finished."""

    # ---- running

    async def run(self) -> None:
        """Flush what becomes due, until `stop`; survives outages of both tiers.

        After `stop` it ends within the grace time, whatever the database does; what it still holds then is given back.

        Raises:
            ConfigurationError: The settings, or both tiers, do not fit together; waiting would not help.
            SchemaVersionError: The schema of the database is not the one that this version needs.
            DurableTierUnavailableError: The database refuses the login at the start.
        """
        jobs = {
            "wake-up channel": self._listen,
            "heartbeat": self._beat,
            "sweep": self._sweep,
            "renewal of leases": self._renew,
            "registration": self._registration.run,
            "janitor": self._janitor.run,
        }
        rounds = asyncio.ensure_future(self._rounds())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            async with BackgroundTasks(jobs) as self._helpers:
                await asyncio.wait({rounds, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not rounds.done():
                    await asyncio.wait({rounds}, timeout=max(0.0, self.settings.grace - self._farewell_time))
                self.unfinished = not rounds.done()
                if not self.unfinished:
                    await rounds
        finally:
            stopped.cancel()
            # Not waited for: a driver whose server hangs takes its time.
            rounds.cancel()
            self.flusher.isolation.stop()
            await self._say_farewell()

    def stop(self) -> None:
        """Stop claiming; `run` returns when what is claimed has been flushed, or the grace time is over."""
        self._stopped.set()
        self._woken.set()

    @property
    def _farewell_time(self) -> float:
        """Seconds of the grace time that are reserved for giving back what is held."""
        return min(1.0, self.settings.grace / 4)

    async def _say_farewell(self) -> None:
        with suppress(SessionCacheError, TimeoutError):
            async with asyncio.timeout(self._farewell_time):
                # Given back, so that other workers need not wait for the lease to expire.
                if len(self.flusher.held_claims):
                    await self.flusher.held_claims.give_back()
                await self._tiers.backlog.beat(self.name, "", ended=True)

    async def _rounds(self) -> None:
        pauses = wait_random_exponential(multiplier=0.1, max=5)
        failures = 0
        while not self._stopped.is_set():
            try:
                await self._check()
                self._registration.check()
                await self._work()
                failures = 0
            except Exception as error:
                if self._is_final(error):
                    raise
                failures += 1
                await self._note(error, failures)
                await self._back_off(pauses(_Attempt(failures)))  # type: ignore[arg-type]
        self.flusher.isolation.wind_down()
        await self.flusher.isolation.finished()

    async def _back_off(self, seconds: float) -> None:
        """Wait, whatever becomes due meanwhile, unless it is time to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    def _is_final(self, error: Exception) -> bool:
        """Whether waiting does not help: the settings are wrong, or what both tiers contain.

        A refused login is wrong at the start; later its password may just be about to change.
        """
        started = self._tiers.installation.checked
        if isinstance(error, DurableTierUnavailableError):
            return error._cause == LOGIN and not started
        return isinstance(error, SchemaVersionError) or (
            isinstance(error, ConfigurationError) and not (started and error._login)
        )

    async def _note(self, error: Exception, failures: int) -> None:
        """Log what failed."""
        if isinstance(error, DurableTierUnavailableError):
            lacks = await self._missing_rights() if error._cause == RIGHTS and SQL not in self._outages else ""
            self._outages.away(SQL, f"{error}{lacks}")
        elif isinstance(error, SessionCacheError):
            self._outages.away(REDIS, str(error))
        elif failures & (failures - 1) == 0:
            # Not its text, which may quote state.
            where = "".join(traceback.format_tb(error.__traceback__))
            logger.error("a round of the worker failed: %s\n%s", type(error).__name__, where)

    async def _missing_rights(self) -> str:
        with suppress(DurableTierUnavailableError), within(_TIMEOUT):
            missing = await self._tiers.durable.missing_rights()
            return f"; it lacks {', '.join(missing)}" if missing else ""
        return ""

    async def _note_success(self, *, flushed: bool) -> None:
        """Log that a tier is back."""
        self._outages.back(REDIS)
        if flushed and not self._registration.is_stuck:
            await self._note_sql_back()

    async def _note_sql_back(self) -> None:
        if SQL in self._outages:
            waiting = sum((await self._tiers.backlog.count_dirty(self._buckets)).values())
            self._outages.back(SQL, f"{waiting:,} scopes wait to be flushed")

    async def flush_once(self) -> int:
        """Flush all that is dirty now, whether due or not; the number of rows.

        It waits for scopes that another worker holds, but not more than three leases without progress.  What the
        database refuses as data becomes dead letters.

        Raises:
            DurableTierUnavailableError: The database cannot be used, or cannot take some scopes, here or from another
                worker.
            HotTierUnavailableError: Redis cannot be reached.
            DamagedValueError: What Redis holds of some scope cannot be read.
        """
        await self._check()
        began = await self._tiers.link.time()
        rows = 0
        standstill = _Standstill(_LEASES * self.settings.lease)
        while True:
            claimed = await self._claim(list(self._buckets), everything=True)
            flushed = await self._flush(claimed)
            rows += flushed
            await self._registration.now()
            # SQL came back older, and everything hot was marked as dirty just now: that has to be flushed as well.
            if await self._janitor.restore():
                began = await self._tiers.link.time()
            oldest = await self._tiers.backlog.oldest(self._buckets)
            if oldest is None or oldest > began:
                return rows
            if not flushed:
                for scope, one in self.flusher.isolation.ailing().items():
                    if one.is_damaged:
                        raise damaged(Damaged(one.cause), [scope[1]])
                    raise DurableTierUnavailableError(f"scope {scope[1]} cannot be flushed: {one.cause}")
                if standstill.is_over(None if claimed else oldest):
                    raise DurableTierUnavailableError(await self._told_of_others())
                await asyncio.sleep(0.05)

    async def _told_of_others(self) -> str:
        held = sum((await self._tiers.backlog.count_dirty(self._buckets)).values())
        return f"another worker holds {counted(held, 'scope')} that it cannot flush: `sessioncache doctor` shows why"

    async def dead_letters(self) -> int:
        """How many entries the database refuses as data."""
        return len(await DeadLetters(self._tiers.link, self._tiers.layout).read(self._buckets))

    async def _check(self) -> None:
        if not self._tiers.installation.checked:
            with within(_TIMEOUT):
                await self._tiers.check()

    async def _work(self) -> None:
        """One round: visit the buckets that are due, or wait until one is."""
        loop = asyncio.get_running_loop()
        due = self._schedule.due(loop.time(), _BUCKETS_AT_ONCE)
        if not due:
            await self._pause(self._schedule.seconds_to_next(loop.time()))
            return
        claimed = await self._claim(due)
        await self._registration.settle()
        rows = await self._flush(claimed, patient=False)
        await self._note_success(flushed=rows > 0)

    async def _pause(self, seconds: float | None) -> None:
        self._woken.clear()
        if self._stopped.is_set():
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
        # R17: None is a bucket whose incarnation SQL does not know: once registered, it is claimed in another round.
        unknown = {bucket for bucket, found in claims.items() if found is None}
        for bucket, found in claims.items():
            self._schedule.note(bucket, found.wait if found else None, began)
            claimed += [(bucket, member) for member in found.members] if found else []
        self.flusher.held_claims.take(claimed)
        self._registration.want(unknown)  # what holds up a registration must not hold up what was claimed
        if self._registration.known(claims.keys() - unknown):
            await self._note_sql_back()
        return claimed

    async def _flush(self, claimed: list[Claimed], *, patient: bool = True) -> int:
        """Flush what was claimed; `patient`: wait also for what `isolation` tries.  The number of rows."""
        try:
            rows = await self.flusher.flush(claimed, patient=patient)
        except Exception:
            await self._give_back(claimed)
            raise
        self._look_again({bucket for bucket, _ in claimed}, self.settings.flush_delay)
        return rows

    async def _give_back(self, claimed: list[Claimed]) -> None:
        """Let what could not be flushed be due again soon, here or at another worker."""
        left = [scope for scope in self.flusher.held_claims.of(claimed) if not self.flusher.isolation.has(scope)]
        with suppress(SessionCacheError):
            await self.flusher.held_claims.put_off(left, min(_SOON, self.settings.lease))

    def _look_again(self, buckets: Iterable[int], seconds: float) -> None:
        """Something of buckets is due in some seconds."""
        at = asyncio.get_running_loop().time() + seconds
        for bucket in buckets:
            self._schedule.announce(bucket, at)
        self._woken.set()

    # ---- background tasks

    async def _listen(self) -> None:
        """Receive the buckets that become dirty."""

        def heard(bucket: int | None) -> None:
            now = asyncio.get_running_loop().time()
            for one in self._buckets if bucket is None else (bucket,):
                self._schedule.announce(one, now)
            self._woken.set()

        await listen(self._tiers.link, self._tiers.layout, heard)

    async def _beat(self) -> None:
        while True:
            with suppress(HotTierUnavailableError):
                await self._tiers.backlog.beat(self.name, json.dumps(self._about()))
            await asyncio.sleep(_HEARTBEAT)

    def _about(self) -> dict[str, Any]:
        """What the worker reports of itself, for `doctor` and for a `flush` that takes long."""
        about: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
        ailing = self.flusher.isolation.ailing()
        told = [(*scope, one.cause, one.attempts) for scope, one in list(ailing.items())[:_AILING_TOLD]]
        more = {
            "away": self._outages.causes(),
            "failing": dict(self._helpers.troubles) if self._helpers else {},
            "ailing": told,
            "ailing_in_all": len(ailing),
        }
        return about | {name: value for name, value in more.items() if value}

    async def _sweep(self) -> None:
        """Search all buckets for dirty scopes now and then, in case an announcement was missed."""
        while True:
            await asyncio.sleep(self.settings.sweep)
            with suppress(HotTierUnavailableError):
                await self._tiers.follow_idle_ttl()
                now = asyncio.get_running_loop().time()
                found = await self._sweeper.dirty(self._buckets)
                for bucket in found:
                    self._schedule.announce(bucket, now)
                if found:
                    self._woken.set()

    async def _renew(self) -> None:
        """Renew the claims on what takes long."""
        while True:
            # A third of a lease: two renewals may fail before another worker takes over.
            await asyncio.sleep(self.settings.lease / 3)
            with suppress(HotTierUnavailableError):
                await self.flusher.held_claims.renew()

    def _registered(self, buckets: Collection[int]) -> None:
        """Visit buckets again that were to be registered."""
        self._look_again(buckets, 0.0)

    async def _note_unregistered(self, error: SessionCacheError) -> bool:
        """Log why buckets could not be registered; whether to go on."""
        await self._note(error, 1)
        return not self._is_final(error)

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
    """What tenacity's waits read of the attempts so far."""

    def __init__(self, attempt_number: int) -> None:
        self.attempt_number = attempt_number
