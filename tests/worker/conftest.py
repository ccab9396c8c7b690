"""Both tiers for the rules: each engine over SQLite, Valkey over each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import Urls, upgrade
from tests.worker.backups import Backup, DatabaseBackup, FileBackup


@pytest.fixture
async def urls(valkey_url: str, database_url: str) -> Urls:
    """Valkey over SQLite, and in turn over PostgreSQL; with the schema, empty."""
    await upgrade(database_url)
    return Urls(valkey_url, database_url)


@pytest.fixture
async def pg_urls(valkey_url: str, postgresql_url: str) -> Urls:
    """Valkey over PostgreSQL; with the schema, empty."""
    await upgrade(postgresql_url)
    return Urls(valkey_url, postgresql_url)


@pytest.fixture
async def small_urls(redis_url: str, sqlite_url: str) -> Urls:
    """Each engine over SQLite, where the database does not matter; with the schema, empty."""
    await upgrade(sqlite_url)
    return Urls(redis_url, sqlite_url)


@pytest.fixture(params=["sqlite", "postgresql"])
def backup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backup]:
    """A database of each kind, empty."""
    if request.param == "sqlite":
        yield FileBackup(tmp_path)
        return
    made = DatabaseBackup(request.getfixturevalue("postgresql_server"))
    yield made
    made.drop()
