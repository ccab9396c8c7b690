"""The conformance suite over the cache in memory."""

from __future__ import annotations

import pytest

from sessioncache.testing import InMemorySessionCache, MemoryStore
from sessioncache.testing.conformance import *  # noqa: F403
from sessioncache.testing.conformance import OpenCache


@pytest.fixture
def open_cache() -> OpenCache:
    """Caches over one store."""
    store = MemoryStore()

    def open_one(*, app: str, org: str) -> InMemorySessionCache:
        return InMemorySessionCache(app=app, org=org, store=store)

    return open_one
