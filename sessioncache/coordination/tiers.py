"""Both tiers behind one call: prepares what a script reports as missing, and repeats what may be repeated.

Nothing is checked before a call: nearly always everything is ready, and a check would cost a round trip and could be
outdated when the call arrives.  The script checks, changes nothing where something is missing, and says what; only then
SQL is asked.  So a call on a hot scope needs Redis alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_before_delay, wait_random_exponential

from sessioncache.coordination.backpressure import BackPressure
from sessioncache.coordination.fencing import Fencing
from sessioncache.coordination.hydration import Hydrator
from sessioncache.coordination.installation import Installation
from sessioncache.coordination.loop_guard import LoopGuard
from sessioncache.coordination.revalidation import Revalidator
from sessioncache.coordination.usage import Usage
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError, MemoryFullError
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.client import HotClient
from sessioncache.hot.errors import is_final, is_repeatable
from sessioncache.hot.forking import Forking
from sessioncache.hot.incarnations import Incarnations
from sessioncache.hot.keyspace import Keyspace
from sessioncache.hot.large_creates import LargeCreates
from sessioncache.hot.layout import Layout
from sessioncache.hot.leases import Leases
from sessioncache.hot.merging import Merging
from sessioncache.hot.signals import Need, Unready, UnreadyBuckets
from sessioncache.hot.subscriptions import Listener, Sink
from sessioncache.hot.tier import HotTier
from sessioncache.primitives.deadline import seconds_left, within
from sessioncache.primitives.outages import REDIS, Outages
from sessioncache.settings import IDLE_TTL, CacheSettings

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier
    from sessioncache.hot.messages import Refused, Written
    from sessioncache.hot.write import Write

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def _may_repeat(error: BaseException) -> bool:
    """A write without an answer is not among them: the hot tier has made it an OutcomeUnknownError (R4)."""
    return isinstance(error, DurableTierUnavailableError) or is_repeatable(error)


class Tiers:
    """The hot and the durable tier, and what moves scopes from one to the other."""

    def __init__(
        self,
        link: HotClient,
        durable: DurableTier,
        settings: CacheSettings,
        *,
        idle_ttl: float = IDLE_TTL,
        tells: bool = True,
    ) -> None:
        """`idle_ttl`: where neither the settings nor another cache define it; `tells`: whether outages of SQL are
        logged."""
        self.settings = settings
        self.loop_guard = LoopGuard()
        self.layout = Layout(settings.prefix, settings.buckets)
        self.link = link
        self.durable = durable
        # A function, since back-pressure is made further down.
        self._outages = Outages(logger, lambda: self.back_pressure.told())
        if tells:
            durable.outages = self._outages
        idle_ttl = idle_ttl if settings.idle_ttl is None else settings.idle_ttl
        self._agreed = False
        self.hot = HotTier(link, self.layout, idle_ttl=idle_ttl, temp_ttl=settings.temp_ttl)
        self.keyspace = Keyspace(link, self.layout)
        self.large_creates = LargeCreates(self.hot)
        self.forking = Forking(self.hot)
        self.leases = Leases(link)
        self.listener = Listener(link)
        self.backlog = Backlog(link, self.layout, idle_ttl=idle_ttl)
        incarnations = Incarnations(link, self.layout)
        self.fencing = Fencing(incarnations, durable)
        self.merging = Merging(link, self.layout, idle_ttl=idle_ttl)
        self.revalidator = Revalidator(self.merging, durable, self.fencing, self.backlog)
        self.back_pressure = BackPressure(self.backlog, settings)
        self.hydrator = Hydrator(self.hot, durable, self.fencing)
        self.usage = Usage(durable)
        self.installation = Installation(
            link, incarnations, durable, settings, [incarnations, self.hot.idempotency], self.usage.told
        )

    async def check(self) -> None:
        """See `Installation.check`."""
        await self.installation.check()
        await self._agree_once()

    def write(self, write: Write) -> Awaitable[Written | Refused]:
        """Make a write, once it is admitted."""
        return self.perform(self._write, write)

    async def _write(self, write: Write) -> Written | Refused:
        # R18: what only deletes makes room, and is admitted under back-pressure, too.
        if write.adds and not self.back_pressure.is_low:
            await self.back_pressure.admit()
        return await self.hot.write(write)

    async def perform(self, attempt: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Call `attempt` until everything is ready; repeat, with back-off up to the time-out, what certainly had no
        effect.

        ConfigurationError in a forked child, and on another event loop than that of the first call.
        """
        # Before anything is sent: a forked child would read its parent's replies.
        self.loop_guard.check()
        with within(self.settings.timeout):
            try:
                try:
                    result = await self._prepared(attempt, *args)
                except (HotTierUnavailableError, DurableTierUnavailableError) as error:
                    result = await self._again(error, attempt, *args)
            except HotTierUnavailableError as error:
                # Only what would have been repeated is an outage; a refusal that is final says nothing about Redis.
                if is_repeatable(error):
                    self._outages.away(REDIS, str(error))
                raise
        if self._outages.current:
            self._outages.back(REDIS)
        return result

    async def _again(
        self,
        first: HotTierUnavailableError | DurableTierUnavailableError,
        attempt: Callable[[*Ts], Awaitable[T]],
        *args: *Ts,
    ) -> T:
        """Repeat a call that failed, as long as there is time and it can help."""
        if not _may_repeat(first) or is_final(first, 1) or seconds_left() <= 0:
            raise first
        out_of_time = stop_before_delay(seconds_left())
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_repeat),
            wait=wait_random_exponential(multiplier=0.02, max=0.5),
            stop=lambda state: out_of_time(state) or _is_final(state),
            reraise=True,
        )
        try:
            return await retrying(self._prepared, attempt, *args)
        except (HotTierUnavailableError, DurableTierUnavailableError):
            if seconds_left() <= 0 and isinstance(first, DurableTierUnavailableError):
                raise first from None  # the last attempt only ran out of time, which says less than the first error
            raise

    async def _prepared(self, attempt: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        # Also in later calls: with SQL away the first check could not be completed (R18).
        if not self.installation.checked:
            await self.check()
        while True:
            try:
                return await attempt(*args)
            except Unready as why:
                with suppress(Unready):  # what came up meanwhile is met by the next attempt
                    await self._make_ready(why)
            except UnreadyBuckets as missing:
                await self.fencing.register(missing.buckets)
            # Others may keep undoing what was prepared: it ends with the time of the call.
            if seconds_left() <= 0:
                raise HotTierUnavailableError(
                    "the scope could not be made ready in time: SQL took too long, or others keep changing it"
                )

    async def _make_ready(self, why: Unready) -> None:
        if why.need is Need.REGISTER:
            await self.fencing.register(place.ref.bucket for place in why.places)
        elif why.need is Need.REVALIDATE:
            for place in why.places:
                await self.revalidator.revalidate(place)
        else:
            await self.hydrator.hydrate(why.places)

    async def _agree_once(self) -> None:
        """How long a clean scope stays in Redis: what the settings say is recorded for all, else the recorded value is
        used.

        Where Redis takes no writes for now, the next cache that is opened records it.
        """
        if self._agreed:
            return
        self._agreed = True
        if self.settings.idle_ttl is None:
            await self.follow_idle_ttl()
        else:
            told = max(1, int(self.settings.idle_ttl * 1000))
            # Not worth failing a call for: the value is recorded again by every cache that is opened.
            with suppress(MemoryFullError, HotTierUnavailableError):
                await self.keyspace.set_idle_ms(told)

    async def follow_idle_ttl(self) -> None:
        """Use the time that a cache recorded last, if any did."""
        told = await self.keyspace.idle_ms()
        if told is not None:
            self.backlog.idle_ms = self.merging.idle_ms = self.hot.idle_ms = told

    async def listen(self, sink: Sink) -> None:
        """Begin to listen to announcements about scopes; see `Listener`."""
        self.loop_guard.check()
        await self.listener.listen(sink, self.settings.timeout)

    async def drop_idle(self) -> None:
        """Close the connections that no call uses now, if they are our own."""
        await self.listener.drop_idle()
        await self.link.drop_idle()
        await self.durable.drop_idle()

    async def aclose(self) -> None:
        """Close what this object opened."""
        # The connections last: what is ended before gives its tokens back over them.
        await self.usage.aclose()
        await self.leases.aclose()
        await self.hydrator.aclose()
        await self.revalidator.aclose()
        await self.fencing.aclose()
        await self.listener.aclose()
        await self.link.aclose()
        await self.durable.aclose()


def _is_final(state: RetryCallState) -> bool:
    return is_final(state.outcome.exception() if state.outcome else None, state.attempt_number)
