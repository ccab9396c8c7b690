"""Fixtures: a fake server with a clock of its own; the keys left behind are accounted for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.keys import check_keys
from tests.scripts.bench import Bench, Clock, install_clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that all fake servers of the test follow."""
    return install_clock(monkeypatch)


@pytest.fixture
async def fresh(clock: Clock) -> AsyncIterator[Bench]:
    """A hot tier whose buckets SQL does not know yet."""
    bench = Bench.fake(clock)
    yield bench
    await bench.link.aclose()
    bench.hush()
    check_keys(bench.raw)


@pytest.fixture
async def bench(fresh: Bench) -> Bench:
    """A hot tier whose buckets are registered."""
    await fresh.register()
    return fresh
