"""The conformance suite on the embedded default: a data folder, its server and its worker, and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import pytest

from sessioncache import SessionCache
from sessioncache.sync import SessionCache as SyncSessionCache
from sessioncache.testing.conformance import *  # noqa: F403
from sessioncache.testing.conformance import OpenCache
from tests.embedded_helpers import wait_closed


@pytest.fixture(scope="module")
def open_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCache]:
    """Caches of one data folder; one that stays open keeps its server and its worker running between tests."""
    folder = tmp_path_factory.mktemp("conformance") / "data"

    def open_one(*, app: str, org: str) -> AbstractAsyncContextManager[SessionCache]:
        return SessionCache.connect(app=app, org=org, data_dir=str(folder), timeout=30)

    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("SESSIONCACHE_REDIS_URL", raising=False)
        environment.delenv("SESSIONCACHE_DATABASE_URL", raising=False)
        with SyncSessionCache.connect(app="stays", data_dir=str(folder)):
            yield open_one
        gc.collect()
        wait_closed(folder)
