"""Both tiers for the synchronous API, and caches on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessioncache.sync import SessionCache
from tests.client.conftest import small_urls, urls
from tests.helpers import Urls
from tests.waiting import stretched

__all__ = ["small_urls", "urls"]


@pytest.fixture
def cache(urls: Urls) -> Iterator[SessionCache]:
    """A cache over Valkey and SQLite, and in turn over Redis and PostgreSQL."""
    with SessionCache.connect(*urls, app="app", timeout=stretched(5.0)) as opened:
        yield opened


@pytest.fixture
def small_cache(small_urls: Urls) -> Iterator[SessionCache]:
    """A cache over Valkey and SQLite."""
    with SessionCache.connect(*small_urls, app="app", timeout=stretched(5.0)) as opened:
        yield opened
