"""A session cache without servers, for the unit tests of programs that use sessioncache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessioncache.cache import SessionCache
from sessioncache.coordination.connecting import Connecting
from sessioncache.errors import ConfigurationError
from sessioncache.operations.retention import expire
from sessioncache.primitives.names import check_name
from sessioncache.settings import CacheSettings
from sessioncache.testing.store import MemoryStore
from sessioncache.testing.tiers import MemoryTiers


class InMemorySessionCache(SessionCache):
    """A `SessionCache` whose state lies in this process: the same calls, results and errors, no Redis, no database.

    Everything counts as durable at once, so that `flush` returns.  What only servers can do to a program is not
    imitated: time-outs, a tier that is away, back-pressure, full memory.  Several event loops and threads may use it.

    ::

        async def test_my_agent():
            async with InMemorySessionCache(app="support") as cache:
                session = await cache.create("ada")
                await my_agent(cache, session.id)
                assert (await session.get("step")) == 1
    """

    def __init__(
        self,
        *,
        app: str,
        org: str = "",
        store: MemoryStore | None = None,
        clock: Callable[[], int] | None = None,
        **settings: Any,
    ) -> None:
        """A cache over a store of its own, or over another cache's (`store=other.store`), which both then share.

        `clock` returns the microseconds since 1970, so that a test can let time pass without waiting. Settings are
        those of `CacheSettings`.

        Raises:
            ConfigurationError: A setting is unknown or has no usable value.
            InvalidNameError: `app` or `org` cannot be used as a name.
        """
        if store is not None and clock is not None:
            raise ConfigurationError("a store has its clock already: give either store or clock")
        self.store = MemoryStore(clock) if store is None else store
        self._set_up(MemoryTiers(self.store, CacheSettings.of(settings)), app, org, None)

    async def expire(self) -> int:
        """Do what workers do now and then: delete the sessions that are past the `retention` of their app.

        Returns how many there were, in all apps of the store.
        """
        return await expire(self._tiers)

    @classmethod
    def connect(
        cls,
        redis_url: str | None = None,
        database_url: str | None = None,
        *,
        app: str,
        org: str = "",
        data_dir: str | None = None,
        **settings: Any,
    ) -> Connecting[SessionCache]:
        """In place of `SessionCache.connect`: a new cache in memory, whatever URLs or folder are given.

        Raises:
            ConfigurationError: A setting is unknown or has no usable value.
            InvalidNameError: `app` or `org` cannot be used as a name.
        """
        check_name("app", app, empty=True)
        check_name("org", org, empty=True)
        return _Opening(lambda: cls(app=app, org=org, **settings), CacheSettings.of(settings))


class _Opening(Connecting[SessionCache]):
    """A cache in memory that is about to be opened."""

    def __init__(self, make: Callable[[], SessionCache], settings: CacheSettings) -> None:
        super().__init__(lambda *_: make(), None, None, None, settings)
        self._make = make

    async def _open(self) -> SessionCache:
        return self._make()
