"""Both tiers for faults: Valkey over each database."""

from __future__ import annotations

import pytest

from tests.helpers import Urls, upgrade


@pytest.fixture
async def urls(valkey_url: str, database_url: str) -> Urls:
    """Valkey over SQLite, and in turn over PostgreSQL; with the schema, empty."""
    await upgrade(database_url)
    return Urls(valkey_url, database_url)
