"""Fixtures: the fake server with a clock of its own, and both tiers over Valkey and SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sessioncache import SessionCache
from tests.helpers import Urls, connect, upgrade
from tests.scripts.conftest import bench, clock, fresh

__all__ = ["bench", "cache", "clock", "fresh", "urls"]


@pytest.fixture
async def urls(valkey_url: str, sqlite_url: str) -> Urls:
    """Both tiers, with the schema, empty."""
    await upgrade(sqlite_url)
    return Urls(valkey_url, sqlite_url)


@pytest.fixture
async def cache(urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache over `urls`; no worker runs."""
    async with connect(urls) as opened:
        yield opened
