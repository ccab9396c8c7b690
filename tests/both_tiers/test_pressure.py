"""R18: above a limit of dirt writes are refused or wait; deletes are let in."""

from __future__ import annotations

import asyncio

import pytest

from sessioncache import BackPressureError, SessionCache
from sessioncache.coordination import backpressure as pressure
from tests.helpers import Urls, connect, drain
from tests.scripts.bench import Bench
from tests.waiting import wait_until_async


@pytest.fixture
def measured_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write measures anew."""
    monkeypatch.setattr(pressure, "_GOOD_FOR", 0.000_001)


async def test_a_measurement_is_made_anew_once_it_is_no_longer_good(bench: Bench) -> None:
    assert (await bench.backlog.pressure(1.0)).measure
    assert not (await bench.backlog.pressure(1.0)).measure, "somebody is at it"
    await bench.backlog.pressure(1.0, dirty=5, oldest=0)
    bench.clock.move(0.9)
    noted = await bench.backlog.pressure(1.0)
    assert (noted.dirty, noted.measure) == (5, False)
    bench.clock.move(0.2)
    assert (await bench.backlog.pressure(1.0)).measure


@pytest.mark.usefixtures("measured_each_time")
async def test_above_the_limit_of_dirty_scopes_writes_are_refused_and_deletes_let_in(
    cache: SessionCache, urls: Urls
) -> None:
    for number in range(3):
        await cache.create("ada", session_id=f"s{number}", state={"a": 1})
    async with connect(urls, max_dirty=3) as limited:
        with pytest.raises(BackPressureError) as told:
            await limited.create("ada")
        assert told.value.dirty == 3
        made = await limited.get("ada", "s0")
        with pytest.raises(BackPressureError):
            await made.set("a", 2)
        assert await made.delete("a") is True
        assert await limited.delete("ada", "s0") is True
        await drain(urls)
        assert (await limited.create("ada")).user == "ada"


@pytest.mark.usefixtures("measured_each_time")
async def test_above_the_age_of_dirt_writes_are_refused(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    async with connect(urls, max_dirty_age=0.05) as limited:

        async def refused() -> bool:
            try:
                await limited.user_scope("bob").set("a", 1)
            except BackPressureError as error:
                return error.oldest_age >= 0.05
            return False

        await wait_until_async(refused, 5, "the dirt is too old")
        await drain(urls)
        assert await limited.user_scope("bob").set("a", 2) > 0
    assert made.user == "ada"


@pytest.mark.usefixtures("measured_each_time")
async def test_a_write_that_waits_is_let_in_once_there_is_room(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1")
    async with connect(urls, max_dirty=1, on_full="wait", timeout=10) as limited:
        waiting = asyncio.ensure_future(limited.create("bob"))
        await wait_until_async(lambda: limited._tiers.back_pressure._reading is not None, 5, "the write has looked")
        assert not waiting.done()
        await drain(urls)
        assert (await waiting).user == "bob"
