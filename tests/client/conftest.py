"""Caches: Valkey over SQLite and Redis over PostgreSQL, so that each test meets each engine and each database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sessioncache import SessionCache
from tests.helpers import Urls, connect, upgrade

_PAIRS = {"valkey": "sqlite_url", "redis_server": "postgresql_url"}


@pytest.fixture(params=_PAIRS)
async def urls(request: pytest.FixtureRequest) -> Urls:
    """Both tiers, with the schema, empty."""
    server = request.getfixturevalue(request.param)
    database_url = request.getfixturevalue(_PAIRS[request.param])
    with server.client() as client:
        client.flushall()
    await upgrade(database_url)
    return Urls(server.url, database_url)


@pytest.fixture
async def small_urls(valkey_url: str, sqlite_url: str) -> Urls:
    """Valkey and SQLite, where the engines do not matter."""
    await upgrade(sqlite_url)
    return Urls(valkey_url, sqlite_url)


@pytest.fixture
async def cache(urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache over `urls`."""
    async with connect(urls) as opened:
        yield opened


@pytest.fixture
async def small_cache(small_urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache over `small_urls`."""
    async with connect(small_urls) as opened:
        yield opened
