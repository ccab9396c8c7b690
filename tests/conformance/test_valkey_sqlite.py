"""The conformance suite over Valkey and SQLite, the engines of the embedded default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sessioncache.testing.conformance import *  # noqa: F403
from sessioncache.testing.conformance import OpenCache
from tests.conformance.backends import running
from tests.servers import RedisServer


@pytest.fixture(scope="module")
def open_cache(valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCache]:
    """Caches over both tiers."""
    with running(valkey, f"sqlite:///{tmp_path_factory.mktemp('conformance')}/state.db") as opening:
        yield opening
