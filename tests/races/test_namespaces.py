"""Namespaces never come back from a life that is over, and none is lost (R5, R13, R14, R17)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sessioncache_worker import read_ahead
from sessioncache_worker.worker import FlushWorker

import sessioncache.hot.tier
import sessioncache.hot.tokens
from sessioncache import SessionCache, SessionNotFoundError
from sessioncache.hot.messages import Large
from sessioncache.primitives.entries import Dirt
from tests.conftest import StartRedis
from tests.faults.test_older_copies import CONFIG, Copies
from tests.helpers import (
    Stall,
    Urls,
    connect,
    dirty,
    drain,
    fetch,
    open_worker,
    raw,
    scope_key,
    session,
    settle,
    start_stopping_worker,
    start_worker,
    stop_worker,
    stored_namespaces,
    upgrade,
)
from tests.waiting import wait_until_async

LEASE = "1"
WORKER = ("--lease", LEASE, "--flush-delay", "0.02")


async def items(cache: SessionCache, name: str = "skills", session_id: str = "s1") -> dict[str, Any]:
    """What a new handle sees of a namespace."""
    return dict(await (await cache.get("ada", session_id)).namespace(name).items())


def rows(urls: Urls) -> int:
    """How many rows SQL has of the session, dead ones too."""
    query = "SELECT count(*) FROM sessioncache_state WHERE scope_id = ?"
    return int(fetch(urls.database, query, session("ada", "s1").id)[0][0])


# ---- a loader that stalls


@pytest.fixture
def short_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled loader is overtaken soon."""
    monkeypatch.setattr(sessioncache.hot.tier, "TOKEN_LIFETIME_MS", 100)
    monkeypatch.setattr(sessioncache.hot.tokens, "_EVERY", 3_600)  # as in a process that stands still


@pytest.mark.usefixtures("short_tokens")
@pytest.mark.parametrize("after", ["hot", "flushed and evicted"])
async def test_what_was_read_of_a_namespace_before_its_session_was_born_again_is_never_installed(
    urls: Urls, after: str
) -> None:
    async with connect(urls, timeout=30) as cache, connect(urls) as other:
        made = await cache.create("ada", session_id="s1")
        await made.namespace("skills").update({"old": 1, "both": "old"})
        await settle(urls)
        old = await cache.get("ada", "s1")
        stall = Stall(cache._tiers.hot, "install")
        reading = asyncio.ensure_future(old.namespace("skills").items())
        await wait_until_async(stall.reached.is_set, 10, "the namespace has been read from SQL")
        await other.delete("ada", "s1")
        again = await other.create("ada", session_id="s1")
        await again.namespace("skills").set("both", "new")
        if after != "hot":
            await settle(urls)
        stall.release.set()
        with pytest.raises(SessionNotFoundError):
            await reading
        assert await items(cache) == await items(other) == {"both": "new"}
        await settle(urls)
        assert await items(other) == {"both": "new"}
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"both": "new"}}


@pytest.mark.usefixtures("short_tokens")
async def test_an_old_value_of_a_namespace_is_never_installed_after_a_newer_one_was_flushed_and_evicted(
    urls: Urls,
) -> None:
    async with connect(urls, timeout=30) as cache, connect(urls) as other:
        made = await cache.create("ada", session_id="s1")
        await made.namespace("skills").update({"a": "old", "gone": 1})
        await settle(urls)
        found = await cache.get("ada", "s1")
        stall = Stall(cache._tiers.hot, "install")
        reading = asyncio.ensure_future(found.namespace("skills").items())
        await wait_until_async(stall.reached.is_set, 10, "the namespace has been read from SQL")
        await (await other.get("ada", "s1")).namespace("skills").update({"a": "new"}, delete=["gone"])
        await settle(urls)
        stall.release.set()
        assert dict(await reading) == {"a": "new"}


@pytest.mark.usefixtures("short_tokens")
async def test_a_fork_that_stalls_after_it_listed_the_namespaces_has_those_that_came_since(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache, connect(urls) as other:
        await cache.create("ada", session_id="s1")
        await settle(urls)
        stall = Stall(cache._tiers.durable, "namespaces")
        forking = asyncio.ensure_future(cache.fork("ada", "s1", new_id="c"))
        await wait_until_async(stall.reached.is_set, 10, "the fork asks SQL for the namespaces")
        await (await other.get("ada", "s1")).namespace("skills").set("a", 1)
        await drain(urls)
        stall.release.set()
        await forking
        assert await items(cache, session_id="c") == {"a": 1}


# ---- a worker that stops


@pytest.mark.parametrize(
    ("point", "born_again"),
    [("claimed", False), ("read", False), ("committed", False), ("read", True), ("committed", True)],
)
async def test_a_worker_stopped_with_the_dirt_of_a_namespace_brings_nothing_back(
    urls: Urls, point: str, born_again: bool
) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"plain": "old"})
        await drain(urls)
        with start_stopping_worker(urls, point, *WORKER) as stopped:
            await made.namespace("skills").update({"a": "old", "both": "old"})
            await asyncio.to_thread(stopped.wait_until_stopped)
            await cache.delete("ada", "s1")
            if born_again:
                again = await cache.create("ada", session_id="s1")
                await again.namespace("skills").set("both", "new")
            with start_worker(urls, *WORKER) as other:
                await wait_until_async(lambda: dirty(urls.redis) == 0, 20, "another worker has flushed all")
                await asyncio.to_thread(stop_worker, urls, other)
            before = rows(urls)
            stopped.send(signal.SIGCONT)
            await asyncio.to_thread(stop_worker, urls, stopped)
        assert rows(urls) == before
        assert born_again or before == 0
        expected = {"skills": {"both": "new"}} if born_again else None
        for _ in range(2):
            assert stored_namespaces(urls.database, session("ada", "s1")) == expected
            if born_again:
                assert await items(cache) == {"both": "new"}
            else:
                with pytest.raises(SessionNotFoundError):
                    await items(cache)
            await settle(urls)


@pytest.mark.parametrize("point", ["claimed", "read", "committed"])
async def test_a_worker_stopped_with_older_dirt_of_a_namespace_brings_nothing_back(urls: Urls, point: str) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1")
        skills = made.namespace("skills")
        await skills.update({"a": 0, "gone": 0})
        await drain(urls)
        with start_stopping_worker(urls, point, *WORKER) as stopped:
            await skills.update({"a": 1, "gone": 1})
            await asyncio.to_thread(stopped.wait_until_stopped)
            await skills.update({"a": 2}, delete=["gone"])
            with start_worker(urls, *WORKER) as other:
                await skills.flush(60)
                await asyncio.to_thread(stop_worker, urls, other)
            stopped.send(signal.SIGCONT)
            await asyncio.to_thread(stop_worker, urls, stopped)
        await settle(urls)
        assert await items(cache) == {"a": 2}
    assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"a": 2}}


# ---- a worker that pauses between a session and its namespace


@asynccontextmanager
async def paused_between(
    worker: FlushWorker, first: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Event]:
    """The worker has read what is due of one kind, and reads the other once the event is set."""
    claimed = sorted(await worker._claim(list(worker._buckets), everything=True), key=lambda one: one[1][0] != first)
    assert [member[0] for _, member in claimed] == [first, "n" if first == "s" else "s"]
    at_second, resumed, look, looks = asyncio.Event(), asyncio.Event(), worker.flusher.look, 0

    async def stalled(scopes: Sequence[tuple[int, str]], most: int) -> list[Dirt | Large]:
        nonlocal looks
        looks += 1
        if looks == 2:
            at_second.set()
            await resumed.wait()
            found = await look(scopes, most)
            for _ in range(worker._tiers.durable.writers):
                worker.flusher._free.release()
            return found
        return await look(scopes, most)

    monkeypatch.setattr(read_ahead, "_STEP", 1)
    monkeypatch.setattr(worker.flusher, "look", stalled)
    for _ in range(worker._tiers.durable.writers):  # as with earlier batches under way: both go into one
        await worker.flusher._free.acquire()
    flushing = asyncio.create_task(worker.flusher.flush(claimed))
    await at_second.wait()
    yield resumed
    resumed.set()
    await flushing


@pytest.mark.parametrize("first", ["s", "n"], ids=["the session first", "the namespace first"])
@pytest.mark.parametrize("end", ["created anew", "cleared"])
async def test_a_worker_that_pauses_between_a_session_and_its_namespace_brings_nothing_back(
    urls: Urls, monkeypatch: pytest.MonkeyPatch, first: str, end: str
) -> None:
    async with connect(urls) as cache, open_worker(urls, lease=0.5) as slow, open_worker(urls) as other:
        made = await cache.create("ada", session_id="s1", state={"plain": 0})
        await made.namespace("skills").set("a", 0)
        await other.flush_once()
        await made.set("secret", "old")
        await made.namespace("skills").set("secret", "old")
        async with paused_between(slow, first, monkeypatch) as resumed:
            await wait_until_async(lambda: _flushes(other), 10, "the lease has passed")
            if end == "created anew":
                await cache.delete("ada", "s1")
                await other.flush_once()
                made = await cache.create("ada", session_id="s1")
            else:
                await made.clear()
                await made.namespace("skills").clear()
            await other.flush_once()
            await (made if first == "n" else made.namespace("skills")).set("new", 1)
            resumed.set()
        assert not await slow._tiers.backlog.is_older(), "SQL has all that was flushed"
        await drain(urls)
    kept = fetch(urls.database, "SELECT namespace, key FROM sessioncache_state")
    assert kept == [("" if first == "n" else "skills", "new")]


async def _flushes(worker: FlushWorker) -> bool:
    return await worker.flush_once() > 0


# ---- Redis forgets


@pytest.mark.parametrize("flushed", [True, False], ids=["in SQL", "nowhere"])
async def test_redis_loses_the_session_and_keeps_the_dirt_of_its_namespace(urls: Urls, flushed: bool) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1")
        if flushed:
            await drain(urls)
        await made.namespace("skills").set("a", 1)
        with raw(urls.redis) as client:
            client.delete(scope_key(session("ada", "s1")))
        await drain(urls)
        if flushed:
            assert await items(cache) == {"a": 1}
            await made.namespace("skills").set("b", 2)
            await settle(urls)
            assert stored_namespaces(urls.database, session("ada", "s1")) == {"skills": {"a": 1, "b": 2}}
        else:
            with pytest.raises(SessionNotFoundError):
                await items(cache)
            assert stored_namespaces(urls.database, session("ada", "s1")) is None
            again = await cache.create("ada", session_id="s1")
            assert await again.namespace("skills").items() == []
            await settle(urls)


@pytest.fixture
async def copied(start_redis: StartRedis, database_url: str) -> tuple[Urls, Copies]:
    """Both tiers, and a copy of the files of Redis to go back to."""
    await upgrade(database_url)
    server = start_redis(**CONFIG)
    return Urls(server.url, database_url), Copies(server)


@pytest.mark.parametrize("dirty_in_copy", [False, True], ids=["clean", "dirty"])
async def test_namespaces_flushed_after_the_copy_are_there_again(
    copied: tuple[Urls, Copies], dirty_in_copy: bool
) -> None:
    urls, copies = copied
    async with connect(urls, timeout=15) as cache:
        made = await cache.create("ada", session_id="s1")
        await made.namespace("skills").update({"a": "old", "gone": 1})
        if not dirty_in_copy:
            await drain(urls)
        copies.take()
        await made.namespace("skills").update({"a": "new"}, delete=["gone"])
        await made.namespace("later").set("b", 1)
        await made.touch(messages=1)
        await drain(urls)
        copies.go_back()
        await cache.fork("ada", "s1", new_id="c")
        for name in ("s1", "c"):
            assert await items(cache, session_id=name) == {"a": "new"}
            assert await items(cache, "later", name) == {"b": 1}
        assert (await cache.get("ada", "s1")).message_count == 1
        await settle(urls)
        for name in ("s1", "c"):
            expected = {"skills": {"a": "new"}, "later": {"b": 1}}
            assert stored_namespaces(urls.database, session("ada", name)) == expected


@pytest.mark.parametrize("dirty_in_copy", [False, True], ids=["clean", "dirty"])
@pytest.mark.parametrize("born_again", [False, True], ids=["deleted", "born again"])
@pytest.mark.parametrize("first", ["client", "worker"])
async def test_namespaces_of_a_life_that_ended_after_the_copy_do_not_come_back(
    copied: tuple[Urls, Copies], dirty_in_copy: bool, born_again: bool, first: str
) -> None:
    urls, copies = copied
    async with connect(urls, timeout=15) as cache:
        made = await cache.create("ada", session_id="s1")
        await made.namespace("skills").update({"old": 1, "both": "old"})
        if not dirty_in_copy:
            await drain(urls)
        copies.take()
        await cache.delete("ada", "s1")
        if born_again:
            again = await cache.create("ada", session_id="s1")
            await again.namespace("skills").set("both", "new")
        await drain(urls)
        copies.go_back()
        if first == "worker":
            await drain(urls)
        for _ in range(2):
            if born_again:
                assert await items(cache) == {"both": "new"}
            else:
                with pytest.raises(SessionNotFoundError):
                    await items(cache)
            await settle(urls)
        assert stored_namespaces(urls.database, session("ada", "s1")) == (
            {"skills": {"both": "new"}} if born_again else None
        )
