"""What a synchronous cache is connected to: an asynchronous one on the portal's loop, another one in each process."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from sessioncache.cache import SessionCache
from sessioncache.coordination.connecting import (
    DATA_DIR,
    DATABASE_URL,
    DEFAULT_DATA_DIR,
    REDIS_URL,
    Connecting,
    place_of,
)
from sessioncache.errors import ConfigurationError
from sessioncache.sync.portal import portal


@dataclass(frozen=True)
class Recipe:
    """All that it takes to connect, in this process and in its children."""

    redis_url: str | None = field(repr=False)
    database_url: str | None = field(repr=False)
    app: str
    org: str
    data_dir: str
    settings: dict[str, Any]

    @classmethod
    def of(
        cls,
        redis_url: str | None,
        database_url: str | None,
        app: str,
        org: str,
        data_dir: str | None,
        settings: dict[str, Any],
    ) -> Recipe:
        """What the environment and the working directory say is taken from them now."""
        folder = place_of(data_dir, DATA_DIR) or DEFAULT_DATA_DIR
        return cls(
            place_of(redis_url, REDIS_URL),
            place_of(database_url, DATABASE_URL),
            app,
            org,
            os.path.abspath(folder),
            settings,
        )

    def begin(self) -> Connecting[SessionCache]:
        """An asynchronous cache, about to be opened.  ConfigurationError, InvalidNameError."""
        return SessionCache.connect(
            self.redis_url, self.database_url, app=self.app, org=self.org, data_dir=self.data_dir, **self.settings
        )


class Connection:
    """The asynchronous cache of this process, opened when it is first needed."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.lock = threading.RLock()
        """Held while connections are made, and while something moves to the new ones."""
        self._cache: SessionCache | None = None
        self._closed = False
        self._opening = False
        self._torn = False
        self._files = 0
        """Open connections to SQLite files."""

    def cache(self) -> SessionCache:
        """The asynchronous cache.  ConfigurationError once closed; what `connect` raises where it is opened."""
        return self._cache or self._opened()

    def _opened(self) -> SessionCache:
        with self.lock:
            if self._closed:
                raise ConfigurationError("this cache has been closed")
            if self._torn:
                raise ConfigurationError(
                    "the process was forked amid a transaction on its SQLite file, which its child cannot use safely"
                )
            if self._cache is None:
                portal().guests.add(self)
                self._opening = True
                try:
                    self._cache = portal().call(self._open())
                finally:
                    self._opening = False
            return self._cache

    async def _open(self) -> SessionCache:
        from sqlalchemy import event
        from sqlalchemy.pool import QueuePool

        cache = await self.recipe.begin()
        engine = cache._tiers.durable.engine
        pool = engine.pool
        if engine.dialect.name == "sqlite" and isinstance(pool, QueuePool):
            self._files = pool.checkedin() + pool.checkedout()
            event.listen(pool, "connect", self._one_more)
            event.listen(pool, "close", self._one_less)
        return cache

    def _one_more(self, *_: object) -> None:
        self._files += 1

    def _one_less(self, *_: object) -> None:
        self._files -= 1

    def close(self) -> None:
        """Close the connections; may be called again."""
        with self.lock:
            cache, self._cache, self._closed = self._cache, None, True
        if cache is not None:
            portal().guests.discard(self)
            portal().call(cache.aclose())

    # ---- what the portal asks

    async def rest(self) -> None:
        """Close the connections that nobody uses now."""
        if self._cache is not None:
            await self._cache._tiers.drop_idle()

    def at_rest(self) -> bool:
        """Whether no SQLite file is open: its locks do not survive a fork."""
        return self._files == 0 and not self._opening

    def forked(self) -> None:
        """In a child: connections will be made anew, and nobody holds the lock here."""
        self.lock = threading.RLock()
        self._torn = not self.at_rest()
        self._cache, self._files, self._opening = None, 0, False

    async def leave(self) -> None:
        """Close the connections: the process ends."""
        if self._cache is not None:
            await self._cache.aclose()
