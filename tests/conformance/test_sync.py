"""The conformance suite through the synchronous API, over Valkey and SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessioncache.sync import SessionCache
from sessioncache.testing import conformance
from tests.conformance.backends import flushing
from tests.conformance.over_sync import Opening
from tests.servers import RedisServer

# What a thread binds is not seen by the task that waits for it.
LEFT_OUT = {"TestBinding", "TestResume"}
globals().update({name: getattr(conformance, name) for name in conformance.__all__ if name not in LEFT_OUT})


@pytest.fixture(scope="module")
def open_cache(valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[conformance.OpenCache]:
    """Synchronous caches over both tiers, presented as asynchronous ones."""
    with flushing(valkey, f"sqlite:///{tmp_path_factory.mktemp('conformance')}/state.db") as urls:

        def open_one(*, app: str, org: str) -> Opening:
            return Opening(lambda: SessionCache.connect(urls.redis, urls.database, app=app, org=org, timeout=30))

        yield open_one
