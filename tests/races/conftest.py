"""Both tiers for races: Valkey over each database, or over PostgreSQL where a lock is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers import Urls, raw, upgrade


@pytest.fixture
async def urls(valkey_url: str, database_url: str) -> Urls:
    """Valkey over SQLite, and in turn over PostgreSQL; with the schema, empty."""
    await upgrade(database_url)
    return Urls(valkey_url, database_url)


@pytest.fixture
async def pg_urls(valkey_url: str, postgresql_url: str) -> Urls:
    """Valkey over PostgreSQL, where rows can be locked."""
    await upgrade(postgresql_url)
    return Urls(valkey_url, postgresql_url)


@pytest.fixture
def flushall(urls: Urls) -> Callable[[], None]:
    """Empties Redis."""

    def empty() -> None:
        with raw(urls.redis) as client:
            client.flushall()

    return empty
