"""What the conformance suite says of calls at once, leases, watches and errors, on uvloop over Valkey and SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from sessioncache.testing.conformance import OpenCache, TestConcurrency, TestErrors, TestLeases, TestWatching
from tests.conformance.backends import running
from tests.servers import RedisServer

__all__ = ["TestConcurrency", "TestErrors", "TestLeases", "TestWatching"]


@pytest.fixture(scope="module")
def open_cache(valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenCache]:
    """Caches over both tiers."""
    with running(valkey, f"sqlite:///{tmp_path_factory.mktemp('conformance')}/state.db") as opening:
        yield opening


@pytest.fixture(autouse=True)
def on_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite runs each test in an event loop of its own: here they are uvloop's."""
    monkeypatch.setattr(asyncio, "run", uvloop.run)
