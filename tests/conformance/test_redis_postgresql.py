"""The conformance suite over Redis and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessioncache.testing.conformance import *  # noqa: F403
from sessioncache.testing.conformance import OpenCache
from tests.conformance.backends import running
from tests.servers import PostgreSQLServer, RedisServer


@pytest.fixture(scope="module")
def open_cache(redis_server: RedisServer, postgresql_server: PostgreSQLServer) -> Iterator[OpenCache]:
    """Caches over both tiers."""
    name = postgresql_server.create_database()
    with running(redis_server, postgresql_server.url(name)) as opening:
        yield opening
    postgresql_server.drop_database(name)
