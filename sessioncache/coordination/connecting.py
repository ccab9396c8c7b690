"""Connecting: from URLs, the environment or a data folder to tiers that have been checked.

Without URLs the *embedded default* is used: a server, a SQLite file and a worker that belong to a data folder.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import ConfigurationError
from sessioncache.hot.client import HotClient
from sessioncache.primitives.deadline import within
from sessioncache.settings import CacheSettings

REDIS_URL = "SESSIONCACHE_REDIS_URL"
DATABASE_URL = "SESSIONCACHE_DATABASE_URL"
DATA_DIR = "SESSIONCACHE_DATA_DIR"
DEFAULT_DATA_DIR = ".sessioncache"


def place_of(given: str | os.PathLike[str] | None, variable: str) -> str | None:
    """A URL or folder: the argument, else the value of the variable; ConfigurationError where that is empty.

    A variable that is set but empty was meant to be filled: falling back to the embedded default would be a surprise.
    """
    found = os.environ.get(variable) if given is None else given
    if found is not None and not isinstance(found, (str, os.PathLike)):
        raise ConfigurationError(f"a URL or folder must be a str, not {type(found).__name__}")
    text = None if found is None else os.fspath(found)
    if text == "":
        where = f"the variable {variable}" if given is None else f"what is given in place of {variable}"
        raise ConfigurationError(f"{where} is empty: name a place, or unset it")
    return text


class Closing(Protocol):
    """Something with connections."""

    async def aclose(self) -> None:
        """Close them."""


C = TypeVar("C", bound=Closing)


class Resources:
    """What was opened for a cache, and is closed with it."""

    def __init__(self, tiers: Tiers, stack: AsyncExitStack) -> None:
        self.tiers = tiers
        self._stack = stack

    async def aclose(self) -> None:
        """Close the connections; leave the data folder, whose server ends with its last user."""
        await self._stack.aclose()


class Connecting(Generic[C]):
    """A cache that is about to be opened: await it, or use it as an asynchronous context manager."""

    def __init__(
        self,
        over: Callable[[Tiers, Resources], C],
        redis_url: str | None,
        database_url: str | None,
        data_dir: str | None,
        settings: CacheSettings,
    ) -> None:
        self._over = over
        self._redis_url = place_of(redis_url, REDIS_URL)
        self._database_url = place_of(database_url, DATABASE_URL)
        self._data_dir = place_of(data_dir, DATA_DIR) or DEFAULT_DATA_DIR
        self._settings = settings
        self._cache: C | None = None

    def __await__(self) -> Generator[None, None, C]:
        return self._open().__await__()

    async def __aenter__(self) -> C:
        self._cache = await self._open()
        return self._cache

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cache is not None:
            await self._cache.aclose()

    async def _open(self) -> C:
        resources = await open_resources(self._redis_url, self._database_url, self._data_dir, self._settings)
        return self._over(resources.tiers, resources)


@asynccontextmanager
async def open_urls(
    redis_url: str | None, database_url: str | None, data_dir: str, *, start_worker: bool = False
) -> AsyncIterator[tuple[str, str]]:
    """The URLs of both tiers: those given, or, without any, those of the embedded default, which runs until the block
    ends.

    The embedded database's schema is brought up to date.
    """
    if redis_url and database_url:
        yield redis_url, database_url
        return
    check_both(redis_url, database_url)
    from sessioncache.durable.migrate import upgrade_database
    from sessioncache.embedded import Embedded

    embedded = await Embedded.open(data_dir, start_worker=start_worker)
    try:
        await upgrade_database(embedded.database_url)
        yield embedded.redis_url, embedded.database_url
    finally:
        await embedded.aclose()


def check_both(redis_url: str | None, database_url: str | None) -> None:
    """Raise ConfigurationError where only one of the two URLs is given."""
    if bool(redis_url) != bool(database_url):
        given, missing = ("Redis", DATABASE_URL) if redis_url else ("the database", REDIS_URL)
        raise ConfigurationError(f"only the URL of {given} is given: set {missing} too, or none of both")


async def open_resources(
    redis_url: str | None, database_url: str | None, data_dir: str, settings: CacheSettings
) -> Resources:
    """Tiers behind URLs, or, without any, the embedded default with its worker; checked (see Installation)."""
    if not redis_url and not database_url:
        _check_embedded(settings)
        # Unflushed data of an earlier program may be old by now, and the worker that flushes it starts only with this
        # one.
        settings = replace(settings, on_full="wait")
    async with AsyncExitStack() as stack:
        urls = await stack.enter_async_context(open_urls(redis_url, database_url, data_dir, start_worker=True))
        tiers = await stack.enter_async_context(open_tiers(*urls, settings))
        # Whatever fails above is closed with this block; from here on it is closed with the cache.
        return Resources(tiers, stack.pop_all())


def _check_embedded(settings: CacheSettings) -> None:
    usual = CacheSettings()
    if (settings.prefix, settings.buckets) != (usual.prefix, usual.buckets):
        raise ConfigurationError(
            "prefix and buckets are for servers of your own: the embedded default is one installation, whose worker "
            "knows no other; use another data_dir"
        )


@asynccontextmanager
async def open_tiers(
    redis_url: str, database_url: str, settings: CacheSettings, *, adopt: bool = False
) -> AsyncIterator[Tiers]:
    """Both tiers, checked; `adopt`: Redis is to belong to this database from now on."""
    tiers = _tiers(redis_url, database_url, settings)
    try:
        # The loop is checked first: what is opened below belongs to it.
        tiers.loop_guard.check()
        with within(settings.timeout):
            await (tiers.installation.adopt() if adopt else tiers.check())
        yield tiers
    finally:
        await tiers.aclose()


def _tiers(redis_url: str, database_url: str, settings: CacheSettings) -> Tiers:
    # Only now: importing the library must not load SQLAlchemy.
    from sessioncache.durable.tier import DurableTier

    link = HotClient.from_url(redis_url, connect_timeout=settings.timeout)
    return Tiers(link, DurableTier.connect(database_url), settings)
