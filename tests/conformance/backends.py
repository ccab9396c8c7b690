"""Both tiers with a worker that runs, for all tests of one module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from sessioncache import SessionCache
from sessioncache.testing.conformance import OpenCache
from tests.helpers import Urls, start_worker, stop_worker, upgrade
from tests.servers import RedisServer


@contextmanager
def flushing(server: RedisServer, database_url: str) -> Iterator[Urls]:
    """An empty server and database, while a worker process flushes what is written."""
    with server.client() as client:
        client.flushall()
    asyncio.run(upgrade(database_url))
    urls = Urls(server.url, database_url)
    with start_worker(urls, "--flush-delay", "0.05") as worker:
        yield urls
        stop_worker(urls, worker)


@contextmanager
def running(server: RedisServer, database_url: str) -> Iterator[OpenCache]:
    """What opens caches over both."""
    with flushing(server, database_url) as urls:

        def open_one(*, app: str, org: str) -> AbstractAsyncContextManager[SessionCache]:
            return SessionCache.connect(urls.redis, urls.database, app=app, org=org, timeout=30)

        yield open_one
