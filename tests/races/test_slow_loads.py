"""R13: a scope that takes long to load is loaded once, whoever wants it, and however often a caller gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import sessioncache.hot.tokens
from sessioncache import DurableTierUnavailableError, HotTierUnavailableError, SessionCache
from sessioncache.primitives.deadline import within
from tests.helpers import Stall, Urls, connect, drain, evict, raw, scope_key, session
from tests.waiting import wait_until_async

TOKEN = f"t:{session('ada', 's1').member}"
CONTROL = f"sessioncache:{{{session('ada', 's1').bucket}}}:ctl"


@pytest.fixture(autouse=True)
def quick_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are renewed long before they are over, however busy the machine is."""
    monkeypatch.setattr(sessioncache.hot.tokens, "_EVERY", 0.1)


@pytest.fixture
async def caches(urls: Urls) -> AsyncIterator[list[SessionCache]]:
    """Three caches, as three processes would have them, over a session that is in SQL only."""
    async with (
        connect(urls, timeout=60) as one,
        connect(urls, timeout=60) as two,
        connect(urls, timeout=60) as three,
    ):
        await one.create("ada", session_id="s1", state={"n": 1})
        await drain(urls)
        evict(urls.redis)
        yield [one, two, three]


class ReadCoalescing:
    """Counts the readings of SQL that a cache begins; each waits until it is released."""

    def __init__(self, cache: SessionCache) -> None:
        self.begun = 0
        self.stall = Stall(cache._tiers.durable, "read_scopes")
        inner = cache._tiers.durable.read_scopes

        async def counted(wanted: object) -> object:
            self.begun += 1
            return await inner(wanted)  # type: ignore[arg-type]

        cache._tiers.durable.read_scopes = counted  # type: ignore[assignment, method-assign]


def token(urls: Urls, name: str = "s1") -> list[str]:
    """Incarnation, token and expiry in the slot of a session's scope."""
    with raw(urls.redis) as client:
        held = client.hget(CONTROL, f"t:{session('ada', name).member}")
    assert isinstance(held, bytes)
    return held.decode().split("|")


async def test_a_loader_keeps_its_token_and_the_others_wait(urls: Urls, caches: list[SessionCache]) -> None:
    first, *others = [ReadCoalescing(cache) for cache in caches]
    calls = [asyncio.ensure_future(caches[0].get("ada", "s1"))]
    await first.stall.reached.wait()
    before = token(urls)
    calls += [asyncio.ensure_future(cache.get("ada", "s1")) for cache in caches[1:]]

    def is_kept() -> bool:
        now = token(urls)
        return now[:2] == before[:2] and int(now[2]) > int(before[2]) + 300_000

    await wait_until_async(is_kept, 20, "the token is renewed")
    first.stall.release.set()
    assert [one.state["n"] for one in await asyncio.gather(*calls)] == [1, 1, 1]
    assert [one.begun for one in others] == [0, 0]


async def test_a_create_keeps_its_token_while_it_looks_for_the_id(urls: Urls, caches: list[SessionCache]) -> None:
    await caches[0].delete("ada", "s1")
    await drain(urls)
    evict(urls.redis)
    readings = ReadCoalescing(caches[0])
    creating = asyncio.ensure_future(caches[0].create("ada", session_id="s1", state={"n": 2}))
    await readings.stall.reached.wait()
    before = token(urls)
    await wait_until_async(lambda: int(token(urls)[2]) > int(before[2]), 20, "the token is renewed")
    assert token(urls)[:2] == before[:2]
    readings.stall.release.set()
    assert (await creating).state["n"] == 2


async def test_a_large_fork_keeps_its_token_while_it_reads_its_parent(urls: Urls, caches: list[SessionCache]) -> None:
    parent = await caches[0].create("ada", session_id="p", state={f"k{number}": number for number in range(2_500)})
    reading = Stall(caches[0]._tiers.hot, "read_large")
    forking = asyncio.ensure_future(parent.fork(new_id="c"))
    await reading.reached.wait()
    before = token(urls, "c")
    await wait_until_async(lambda: int(token(urls, "c")[2]) > int(before[2]), 20, "the token is renewed")
    assert token(urls, "c")[:2] == before[:2]
    reading.release.set()
    assert (await forking).state == parent.state


async def test_a_revalidation_keeps_its_token(urls: Urls, caches: list[SessionCache]) -> None:
    await caches[0].get("ada", "s1")
    with raw(urls.redis) as client:
        client.hset(scope_key(session("ada", "s1")), "y", "1")
    stall = Stall(caches[0]._tiers.durable, "read_changes")
    reading = asyncio.ensure_future(caches[0].get("ada", "s1"))
    await stall.reached.wait()
    before = token(urls)
    await wait_until_async(lambda: int(token(urls)[2]) > int(before[2]), 20, "the token is renewed")
    stall.release.set()
    assert (await reading).state["n"] == 1


async def test_who_gives_up_does_not_end_the_loading(urls: Urls, caches: list[SessionCache]) -> None:
    cache, readings = caches[0], ReadCoalescing(caches[0])

    async def give_up() -> None:
        with within(0.5), pytest.raises((DurableTierUnavailableError, HotTierUnavailableError)):
            await cache.get("ada", "s1")

    first = asyncio.ensure_future(give_up())
    await readings.stall.reached.wait()
    await first
    await give_up()
    readings.stall.release.set()
    loadings = cache._tiers.hydrator._loadings
    await wait_until_async(lambda: not loadings._running, 20, "the loading has ended")
    assert readings.begun == 1
    with raw(urls.redis) as client:
        assert client.exists(scope_key(session("ada", "s1"))), "it was loaded all the same"


async def test_closing_ends_the_loading_and_gives_the_token_back(urls: Urls, caches: list[SessionCache]) -> None:
    readings = ReadCoalescing(caches[0])
    reading = asyncio.ensure_future(caches[0].get("ada", "s1"))
    await readings.stall.reached.wait()
    reading.cancel()
    await asyncio.wait([reading])
    await caches[0].aclose()
    with raw(urls.redis) as client:
        assert not client.hexists(CONTROL, TOKEN)
