"""Run leases: one runner of a session at a time, whose late writes are refused."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessioncache import (
    ConfigurationError,
    HotTierUnavailableError,
    LeaseUnavailableError,
    Session,
    SessionCache,
    SessionNotFoundError,
    StaleLeaseError,
)
from sessioncache.hot.leases import Leases
from tests.conftest import StartRedis
from tests.helpers import Process, Urls, connect, drain, evict, raw, scope_key, session, stored_values, upgrade
from tests.proxy import Proxy
from tests.servers import RedisServer
from tests.waiting import stretched, wait_until_async


async def made(cache: SessionCache) -> Session:
    """A session with one key of each scope and one of a namespace."""
    found = await cache.create("ada", session_id="s1", state={"a": 1, "list": [1], "user:u": 1, "app:p": 1})
    await found.namespace("tools").set("x", 1)
    return found


def leases(urls: Urls, scope: str = "s1") -> dict[bytes, bytes]:
    """The leases that Redis knows of."""
    with raw(urls.redis) as client:
        control: dict[Any, Any] = client.hgetall(f"sessioncache:{{{session('ada', scope).bucket}}}:ctl")
    return {name: value for name, value in control.items() if name.startswith(b"l:")}


@asynccontextmanager
async def lost(cache: SessionCache, urls: Urls, ttl: float = 30) -> AsyncIterator[tuple[Session, Session]]:
    """A handle that lost its lease to another one, which holds it."""
    found = await cache.get("ada", "s1")
    async with found.lease(ttl) as late:
        forget_lease(urls)
        async with found.lease() as held:
            yield late, held


def forget_lease(urls: Urls) -> None:
    """End the lease of the session as if its holder had been silent for too long."""
    with raw(urls.redis) as client:
        client.hdel(f"sessioncache:{{{session('ada', 's1').bucket}}}:ctl", *leases(urls))


async def edit(held: Session) -> None:
    """Change one key by a draft."""
    async with held.edit() as draft:
        draft["a"] = "late"


async def clear_tools(held: Session) -> None:
    """Clear the namespace."""
    await held.namespace("tools").clear()


WRITES: dict[str, Callable[[Session], Awaitable[object]]] = {
    "set": lambda held: held.set("a", "late"),
    "set of a new key": lambda held: held.set("late", "late"),
    "set of a user key": lambda held: held.set("user:u", "late"),
    "set of a temp key": lambda held: held.set("temp:t", "late"),
    "update": lambda held: held.update({"a": "late", "user:u": "late"}, delete=["list"]),
    "edit": edit,
    "increment": lambda held: held.increment("a"),
    "increment beyond what Lua counts": lambda held: held.increment("a", 0.5),
    "append": lambda held: held.append("list", "late"),
    "delete": lambda held: held.delete("a"),
    "clear": lambda held: held.clear(),
    "a namespace": lambda held: held.namespace("tools").set("x", "late"),
    "a new namespace": lambda held: held.namespace("late").set("x", "late"),
    "clear of a namespace": clear_tools,
    "touch": lambda held: held.touch(messages=1, tokens=1),
    "rename": lambda held: held.rename("late"),
    "fork": lambda held: held.fork(new_id="late"),
}


async def test_one_runner_holds_the_lease_and_the_next_one_gets_it_after(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    async with connect(urls) as other:
        rival = await other.get("ada", "s1")
        async with found.lease() as held:
            assert await held.increment("a") == 2
            with pytest.raises(LeaseUnavailableError):
                async with rival.lease():
                    pytest.fail("two runners at once")
            assert await rival.increment("a") == 3, "other handles may still write"
            assert await held.increment("a") == 4
        async with rival.lease() as held:
            assert await held.increment("a") == 5
    assert leases(urls) == {}


async def test_who_waits_gets_the_lease_as_soon_as_it_is_given_back(cache: SessionCache) -> None:
    found = await made(cache)
    order: list[str] = []

    async def run(name: str) -> None:
        async with found.lease(wait=20):
            assert order.count("in") == order.count("out"), "two runners at once"
            order.append("in")
            await asyncio.sleep(0)
            order.append("out")

    await asyncio.gather(*(run(f"runner {number}") for number in range(6)))
    assert order == ["in", "out"] * 6


async def test_who_waits_in_vain_is_told_when_the_wait_is_over(cache: SessionCache) -> None:
    found = await made(cache)
    async with found.lease():
        began = asyncio.get_running_loop().time()
        with pytest.raises(LeaseUnavailableError):
            await found.lease(wait=0.3).__aenter__()
        assert 0.3 <= asyncio.get_running_loop().time() - began < stretched(5)


async def test_a_lease_renews_itself_as_long_as_its_holder_lives(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    async with found.lease(ttl=0.3) as held:
        first = leases(urls)
        seen = set(first.values())

        def renewed() -> bool:
            seen.update(leases(urls).values())
            return len(seen) >= 5

        await wait_until_async(renewed, 20, "the lease is renewed four times, for longer than it lasts")
        assert await held.set("a", 2)
        with pytest.raises(LeaseUnavailableError):
            await found.lease().__aenter__()


async def test_a_lease_that_is_not_renewed_is_over_after_its_time(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await made(cache)

    async def never(*_: object) -> bool:
        return True

    async with found.lease(ttl=0.2) as late:
        monkeypatch.setattr(Leases, "renew", never)
        async with found.lease(wait=20) as held:
            with pytest.raises(StaleLeaseError):
                await late.set("a", "late")
            await held.set("a", "held")
    assert await found.get("a") == "held"


async def test_a_holder_whose_time_is_over_is_refused_also_where_nobody_else_took_the_lease(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await made(cache)

    async def never(*_: object) -> bool:
        return True

    monkeypatch.setattr(Leases, "renew", never)
    async with found.lease(ttl=0.05) as late:
        await asyncio.sleep(0.06)
        with pytest.raises(StaleLeaseError):
            await late.set("a", "late")
    assert await found.get("a") == 1


@pytest.mark.parametrize("write", WRITES)
async def test_what_is_written_under_a_lost_lease_is_refused(
    small_cache: SessionCache, small_urls: Urls, write: str
) -> None:
    await made(small_cache)
    before = await small_cache.export_session("ada", "s1")
    shared = (await small_cache.user_scope("ada").get("u"), await small_cache.app_scope().get("p"))
    async with lost(small_cache, small_urls) as (late, _):
        with pytest.raises(StaleLeaseError):
            await WRITES[write](late)
    assert await small_cache.export_session("ada", "s1") == before
    assert (await small_cache.user_scope("ada").get("u"), await small_cache.app_scope().get("p")) == shared
    assert "temp:t" not in (await small_cache.get("ada", "s1")).state


@pytest.mark.parametrize("write", WRITES)
async def test_all_of_it_may_be_written_while_the_lease_is_held(small_cache: SessionCache, write: str) -> None:
    found = await made(small_cache)
    before = await small_cache.export_session("ada", "s1")
    shared = await small_cache.user_scope("ada").get("u")
    async with found.lease() as held:
        await WRITES[write](held)
    after = await small_cache.export_session("ada", "s1"), await small_cache.user_scope("ada").get("u")
    forks = (await small_cache.list("ada")).items[1:]
    assert after != (before, shared) or forks or "temp:t" in (await small_cache.get("ada", "s1")).state


async def test_who_lost_the_lease_may_read_and_the_new_holder_writes(cache: SessionCache, urls: Urls) -> None:
    await made(cache)
    async with lost(cache, urls) as (late, held):
        assert await late.get("a") == 1
        assert await held.set("a", "held")
        assert await late.get("a") == "held"
        await late.refresh()
    assert leases(urls) == {}, "who lost the lease takes nothing from its new holder, who gave it back"


async def test_the_end_of_a_lost_lease_does_not_end_that_of_the_new_holder(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    late = found.lease()
    await late.__aenter__()
    forget_lease(urls)
    async with found.lease() as held:
        await late.__aexit__(None, None, None)
        assert await held.set("a", "held")


async def test_a_namespace_handle_of_before_is_fenced_too(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    async with found.lease() as late:
        tools = late.namespace("tools")
        await tools.set("x", 2)
        forget_lease(urls)
        for write in (tools.set("x", 3), tools.increment("x"), tools.delete("x"), tools.clear()):
            with pytest.raises(StaleLeaseError):
                await write
    assert await found.namespace("tools").get("x") == 2


async def test_a_lease_is_of_one_life_of_the_session(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    async with found.lease() as late:
        await cache.delete("ada", "s1")
        assert leases(urls) == {}, "a deleted session has no lease"
        again = await cache.create("ada", session_id="s1", state={"a": "new"})
        with pytest.raises(SessionNotFoundError):
            await late.set("a", "late")
        async with again.lease() as held:
            assert await held.set("b", "new")
            with pytest.raises(SessionNotFoundError):
                await late.touch()
        with pytest.raises(SessionNotFoundError):
            await found.lease().__aenter__()
    assert dict((await cache.get("ada", "s1")).state) == {"a": "new", "b": "new", "user:u": 1, "app:p": 1}


async def test_who_waits_for_the_lease_of_a_session_that_is_deleted_is_told(cache: SessionCache) -> None:
    found = await made(cache)
    async with found.lease():
        waiting = asyncio.ensure_future(found.lease(wait=20).__aenter__())
        await asyncio.sleep(0)
        await cache.delete("ada", "s1")
        with pytest.raises(SessionNotFoundError):
            await asyncio.wait_for(waiting, stretched(10))


async def test_the_lease_of_a_cold_session_is_to_be_had(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    await drain(urls)
    assert evict(urls.redis) > 0
    async with found.lease() as held:
        assert await held.increment("a") == 2
        await drain(urls)
        evict(urls.redis)
        assert await held.increment("a") == 3, "eviction of the session does not end its lease"


async def test_an_error_within_the_block_gives_the_lease_back(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    with pytest.raises(ZeroDivisionError):
        async with found.lease():
            raise ZeroDivisionError
    assert leases(urls) == {}
    task = asyncio.ensure_future(_hold(found))
    await wait_until_async(lambda: leases(urls), 10, "the lease is held")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert leases(urls) == {}


async def _hold(found: Session) -> None:
    async with found.lease():
        await asyncio.Event().wait()


@pytest.mark.parametrize(("ttl", "wait"), [(0, 0), (-1, 0), (4_000, 0), (True, 0), ("30", 0), (30, -1), (30, "1")])
async def test_a_lease_that_makes_no_sense_is_refused(cache: SessionCache, ttl: Any, wait: Any) -> None:
    found = await made(cache)
    with pytest.raises(ConfigurationError):
        found.lease(ttl, wait)


# ---- a Redis that forgets


async def test_after_a_flushall_the_old_holder_is_refused(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    await drain(urls)
    async with found.lease() as late:
        with raw(urls.redis) as client:
            client.flushall()
        with pytest.raises(StaleLeaseError):
            await late.set("a", "late")
        async with found.lease() as held:
            await held.set("a", "held")
            with pytest.raises(StaleLeaseError):
                await late.set("a", "late")
    await drain(urls)
    assert (stored_values(urls.database, session("ada", "s1")) or {})["a"] == "held"


async def test_after_a_restart_from_an_older_file_the_lease_in_it_is_nobodys(
    start_redis: StartRedis, sqlite_url: str
) -> None:
    await upgrade(sqlite_url)
    server = start_redis("valkey", appendonly="yes", appendfsync="always", auto_aof_rewrite_percentage=0)
    urls = Urls(server.url, sqlite_url)
    async with connect(urls, timeout=15) as cache:
        found = await made(cache)
        await drain(urls)
        async with found.lease() as late:
            await drain(urls)
            shutil.copytree(server.folder / "appendonlydir", server.folder / "copy")
            server.kill()
            shutil.rmtree(server.folder / "appendonlydir")
            shutil.copytree(server.folder / "copy", server.folder / "appendonlydir")
            server.start()
            assert leases(urls), "the older file holds the lease"
            assert await late.get("a") == 1
            with pytest.raises(StaleLeaseError):
                await late.set("a", "late")
            async with found.lease() as held:
                await held.set("a", "held")
        assert await found.get("a") == "held"


# ---- a holder that is killed


async def test_the_lease_of_a_killed_holder_is_over_after_its_time(cache: SessionCache, urls: Urls) -> None:
    found = await made(cache)
    with Process("tests.races.lease_holder", *urls, "ada", "s1", "1.5") as holder:
        assert holder.hear() == "held"
        with pytest.raises(LeaseUnavailableError):
            await found.lease().__aenter__()
        holder.send(signal.SIGKILL)
        holder.wait()
    began = asyncio.get_running_loop().time()
    async with found.lease(wait=20) as held:
        assert asyncio.get_running_loop().time() - began < stretched(5)
        assert await held.set("a", "taken over")
    with raw(urls.redis) as client:
        assert client.hget(scope_key(session("ada", "s1")), "=a") is not None


@pytest.fixture
async def proxied(redis_server: RedisServer, sqlite_url: str) -> AsyncIterator[tuple[Proxy, Session, Urls]]:
    """A session behind a proxy, whose scripts Redis knows, and where it lies."""
    with redis_server.client() as client:
        client.flushall()
    await upgrade(sqlite_url)
    direct = Urls(redis_server.url, sqlite_url)
    async with (
        connect(direct) as quick,
        Proxy(redis_server.socket) as proxy,
        connect(Urls(f"redis://127.0.0.1:{proxy.port}/0", sqlite_url), timeout=3.0) as cache,
    ):
        async with (await made(quick)).lease():
            pass
        found = await cache.get("ada", "s1")
        yield proxy, found, direct


@pytest.mark.parametrize("how", ["hold_answers", "stall", "cut"])
async def test_a_lease_that_is_being_taken_when_its_taker_is_cancelled_is_given_back(
    proxied: tuple[Proxy, Session, Urls], how: str
) -> None:
    proxy, found, urls = proxied
    getattr(proxy, "hold_answers" if how == "cut" else how)()
    before = proxy.answered
    taking = asyncio.ensure_future(found.lease(ttl=600).__aenter__())
    if how == "stall":
        await asyncio.sleep(0.05)
    else:
        await wait_until_async(lambda: proxy.answered > before, 5, "Redis has given the lease")
        assert len(leases(urls)) == 1
    taking.cancel()
    if how == "cut":
        proxy.cut()
    proxy.resume()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await wait_until_async(lambda: not leases(urls), 5, "nobody has the lease")
    async with found.lease(wait=5):
        pass


@pytest.mark.parametrize("how", ["hold_answers", "stall"])
async def test_a_lease_whose_taking_ran_out_of_time_is_given_back_once_redis_is_there(
    proxied: tuple[Proxy, Session, Urls], how: str
) -> None:
    proxy, found, urls = proxied
    getattr(proxy, how)()
    with pytest.raises(HotTierUnavailableError):
        await found.lease(ttl=600).__aenter__()
    proxy.resume()
    async with connect(urls) as cache, (await cache.get("ada", "s1")).lease(wait=10) as held:
        await held.set("a", 2)


async def test_a_lease_whose_holder_is_cancelled_while_it_leaves_is_given_back(
    proxied: tuple[Proxy, Session, Urls],
) -> None:
    proxy, found, urls = proxied
    lease = found.lease(ttl=600)
    await lease.__aenter__()
    proxy.hold_answers()
    leaving = asyncio.ensure_future(lease.__aexit__(None, None, None))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    proxy.resume()
    await wait_until_async(lambda: not leases(urls), 5, "nobody has the lease")


async def test_one_lease_object_may_be_entered_again(cache: SessionCache) -> None:
    lease = (await made(cache)).lease()
    for _ in range(2):
        async with lease as held:
            await held.set("a", 2)
