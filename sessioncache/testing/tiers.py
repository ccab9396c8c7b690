"""Both tiers in memory: always there, always ready, nothing ever waits to be flushed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

from sessioncache.coordination.backpressure import BackPressure
from sessioncache.coordination.tiers import Tiers
from sessioncache.coordination.usage import Usage
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.client import Argument, HotClient
from sessioncache.hot.keyspace import Keyspace
from sessioncache.hot.large_creates import LargeCreates
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.messages import Part, Refused, Written
from sessioncache.hot.subscriptions import Sink
from sessioncache.primitives.entries import Head
from sessioncache.settings import CacheSettings
from sessioncache.testing.durable import MemoryDurable
from sessioncache.testing.forking import MemoryForking
from sessioncache.testing.hot import MemoryHot
from sessioncache.testing.leases import MemoryLeases
from sessioncache.testing.listening import MemoryListener
from sessioncache.testing.store import MemoryStore

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class MemoryTiers(Tiers):
    """What a cache calls, over a store in this process."""

    def __init__(self, store: MemoryStore, settings: CacheSettings) -> None:
        self.settings = settings
        self.layout = Layout(settings.prefix, settings.buckets)
        self.link = _ClockLink(store)
        self.keyspace = Keyspace(self.link, self.layout)
        self.hot = MemoryHot(store, self.layout, temp_ttl=settings.temp_ttl)
        self.large_creates = _MemoryLargeCreates(self.hot)
        self.forking = MemoryForking(store)
        self.leases = MemoryLeases(store, self.link)
        self.listener = MemoryListener(store)
        self.durable = MemoryDurable(store, self.layout)
        self.back_pressure = _NoBackPressure()
        self.backlog = _NoBacklog()
        self.usage = _MemoryUsage(store, self.durable)

    async def perform(self, attempt: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Call once: it is always ready."""
        return await attempt(*args)

    async def listen(self, sink: Sink) -> None:
        """Begin to listen to what happens to scopes."""
        await self.listener.listen(sink, self.settings.timeout)

    async def aclose(self) -> None:
        """Nothing to close: the store goes with the last cache that uses it."""
        await self.listener.aclose()


class _MemoryLargeCreates(LargeCreates):
    """One step takes a session of any size."""

    async def create(
        self, parts: Sequence[Part], head: Head, *, token: bytes, known: bytes, whole: Sequence[Place] = ()
    ) -> Written | Refused:
        """Create it."""
        return await self._hot.create(parts, head, token=token, known=known, whole=whole)


class _ClockLink(HotClient):
    """A Redis that has only a clock, and in which a scan finds nothing: `MemoryDurable` knows all sessions."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def command(self, *parts: Argument) -> Any:
        if parts[0] == b"TIME":
            return [b"%d" % part for part in divmod(self._store.now(), 1_000_000)]
        return [b"0", []]


class _NoBacklog(Backlog):
    """Nothing that was deleted is left."""

    def __init__(self) -> None: ...

    async def scrub(self, *_: Any, living: bool = False) -> bool:
        """It is gone."""
        return True


class _MemoryUsage(Usage):
    """Knows at once what any cache over the store records, and its clock."""

    def __init__(self, store: MemoryStore, durable: MemoryDurable) -> None:
        super().__init__(durable)
        self._store = store

    def now(self) -> float:
        """The clock of the store."""
        return self._store.now()

    def learn(self) -> None:
        """Take in what is recorded."""
        self.told(self._store.notes)


class _NoBackPressure(BackPressure):
    """Admits every write: nothing waits for a database."""

    def __init__(self) -> None: ...

    @property
    def is_low(self) -> bool:
        """Always."""
        return True

    async def admit(self) -> None: ...
