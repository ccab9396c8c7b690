"""Watching: nothing is missed without being told so, whatever breaks; and nobody's write depends on it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from sessioncache import Change, ConfigurationError, HotTierUnavailableError, Session, SessionCache, Watch
from sessioncache.hot import subscriptions as listening
from tests.conftest import StartRedis
from tests.helpers import Agent, Urls, connect, drain, evict, execute, raw, scope_key, session, upgrade, user
from tests.proxy import Proxy
from tests.waiting import stretched, wait_until_async

PROCESSES = 4
CALLS = 250
KEYS = 60

Told = list[tuple[str, tuple[str, ...], bool]]


async def after(changes: Watch) -> Change:
    """The next change, which has to come."""
    async with asyncio.timeout(stretched(20)):
        return await anext(changes)


async def told_until(changes: Watch, key: str) -> Told:
    """What is told until a key is."""
    told: Told = []
    while not told or key not in told[-1][1]:
        change = await after(changes)
        told.append((change.scope, change.keys, change.missed))
    return told


@pytest.fixture
async def writer(urls: Urls) -> AsyncIterator[Session]:
    """A handle of a session, over connections of its own."""
    async with connect(urls) as other:
        yield await other.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:p": 1})


def cut(urls: Urls) -> None:
    """Cut the connections that listen."""
    with raw(urls.redis) as client:
        assert client.client_kill_filter(_type="pubsub") > 0


def listeners(urls: Urls, scope: Any) -> int:
    """How many connections listen to a scope."""
    channel = scope_key(scope).replace(":h:", ":w:")
    with raw(urls.redis) as client:
        answer: Any = client.execute_command(  # type: ignore[no-untyped-call]
            "PUBSUB", "SHARDNUMSUB", channel
        )
    return int(answer[1])


async def test_a_thousand_changes_of_four_processes_are_told_or_marked_as_missed(urls: Urls) -> None:
    async with connect(urls) as cache:
        found = await cache.create("ada", session_id="s1")
        with ExitStack() as stack:
            agents = [stack.enter_context(Agent(urls)) for _ in range(PROCESSES)]
            async with found.watch() as changes:
                telling = asyncio.create_task(all_until(changes, "app:last"))
                for number, agent in enumerate(agents):
                    agent.begin("work", "ada", "s1", f"p{number}", KEYS, CALLS)
                counted = await asyncio.to_thread(lambda: [agent.answer() for agent in agents])
                await found.set("app:last", True)
                told = await telling
    assert max(counted) == PROCESSES * CALLS
    by_scope = {scope: [c.revision for c in told if c.scope == scope] for scope in ("session", "user", "app")}
    assert all(revisions == sorted(set(revisions)) for revisions in by_scope.values())
    if not any(change.missed for change in told):
        keys = {f"p{number}-{key}" for number in range(PROCESSES) for key in range(KEYS)}
        expected = {prefix + key for key in keys for prefix in ("", "user:", "app:")} | {"app:counter", "app:last"}
        assert {key for change in told for key in change.keys} == expected
        assert len(by_scope["app"]) == PROCESSES * (CALLS + KEYS) + 1


async def all_until(changes: Watch, key: str) -> list[Change]:
    """All changes until one of a key."""
    told = [await after(changes)]
    while key not in told[-1].keys:
        told.append(await after(changes))
    return told


async def test_what_was_written_while_the_connection_was_cut_is_marked_as_missed(
    urls: Urls, cache: SessionCache, writer: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await cache.get("ada", "s1")
    async with found.watch() as changes:
        monkeypatch.setattr(listening, "_PAUSE", (0.3, 0.3))
        cut(urls)
        await wait_until_async(lambda: listeners(urls, session("ada", "s1")) == 0, 10, "the connection to be cut")
        revision = await writer.set("a", 2)
        seen = [await after(changes), await after(changes)]
        assert Change("session", (), revision, missed=True) in seen
        assert {change.scope for change in seen} == {"session", "temp"}
        await writer.set("b", 1)
        assert await told_until(changes, "b") == [("session", ("b",), False)]


async def test_where_nothing_was_written_meanwhile_only_temp_keys_count_as_missed(
    urls: Urls, cache: SessionCache, writer: Session
) -> None:
    found = await cache.get("ada", "s1")
    async with found.watch() as changes, cache.user_scope("ada").watch() as shared:
        cut(urls)
        assert (await after(changes)).scope == "temp"
        await writer.update({"b": 1, "user:b": 1})
        assert await told_until(changes, "b") == [("session", ("b",), False)]
        assert await told_until(shared, "b") == [("user", ("b",), False)]


async def test_r17_what_redis_forgot_is_marked_as_missed(urls: Urls, cache: SessionCache, writer: Session) -> None:
    await drain(urls)
    await writer.update({"a": 2, "user:u": 2})
    found = await cache.get("ada", "s1")
    async with found.watch() as changes:
        with raw(urls.redis) as client:
            client.flushall()
        assert await writer.get("a") == 1
        missed = {(await after(changes)).scope for _ in range(3)}
        assert missed == {"session", "user", "temp"}
        await writer.set("b", 1)
        assert await told_until(changes, "b") == [("session", ("b",), False)]


async def test_r17_what_revalidation_takes_from_sql_is_marked_as_missed(
    urls: Urls, cache: SessionCache, writer: Session
) -> None:
    await drain(urls)
    found = await cache.get("ada", "s1")
    async with found.watch() as changes:
        newer = "(SELECT MAX(revision) FROM sessioncache_session) + 5"
        execute(urls.database, f"UPDATE sessioncache_state SET value = '9', revision = {newer} WHERE key = 'a'")
        columns = ("revision", "values_revision", "updated")
        execute(urls.database, f"UPDATE sessioncache_session SET {', '.join(f'{c} = {c} + 5' for c in columns)}")
        with raw(urls.redis) as client:
            client.hset(scope_key(session("ada", "s1")), "y", "1")
        await writer.refresh()
        assert writer.state["a"] == 9
        assert await told_until_scope(changes, "session") == Change("session", (), writer.revision, missed=True)


async def test_an_installation_in_another_database_of_the_server_is_not_heard(
    urls: Urls, cache: SessionCache, writer: Session, tmp_path: Path
) -> None:
    """Channels are the server's, not a database's, and both installations have the same sessions."""
    elsewhere = Urls(f"{urls.redis}?db=1", f"sqlite:///{tmp_path}/other.db")
    await upgrade(elsewhere.database)
    found = await cache.get("ada", "s1")
    async with found.watch() as changes, connect(elsewhere) as other:
        strange = await other.create("ada", session_id="s1", state={"x": 1, "user:x": 1, "app:x": 1})
        await strange.update({"x": 2, "temp:x": 1})
        await writer.set("b", 1)
        assert {one for one in await told_until(changes, "b") if one[0] != "temp"} == {("session", ("b",), False)}


async def test_eviction_is_no_change(urls: Urls, cache: SessionCache, writer: Session) -> None:
    found = await cache.get("ada", "s1")
    async with found.watch() as changes:
        await drain(urls)
        assert evict(urls.redis) > 0
        assert await writer.get("a") == 1
        await writer.update({"b": 1})
        assert await told_until(changes, "b") == [("session", ("b",), False)]


async def test_a_watch_outlives_a_restart_of_redis(start_redis: StartRedis, sqlite_url: str) -> None:
    server = start_redis(appendonly="yes", appendfsync="always")
    await upgrade(sqlite_url)
    urls = Urls(server.url, sqlite_url)
    async with connect(urls) as cache, connect(urls) as other:
        found = await cache.create("ada", session_id="s1")
        writer = await other.get("ada", "s1")
        async with found.watch() as changes:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await writer.set("b", 1)
            told = await told_until_scope(changes, "session")
            assert told.missed or told.keys == ("b",)
            await writer.set("c", 1)
            assert ("session", ("c",), False) in await told_until(changes, "c")


async def told_until_scope(changes: Watch, scope: str) -> Change:
    """The next change of a scope."""
    change = await after(changes)
    while change.scope != scope:
        change = await after(changes)
    return change


async def test_more_keys_than_are_named_are_told_as_missed(urls: Urls, cache: SessionCache, writer: Session) -> None:
    found = await cache.get("ada", "s1")
    async with found.watch() as changes:
        revision = await writer.update({f"k{number}": number for number in range(1_001)})
        assert await after(changes) == Change("session", (), revision, missed=True)


async def test_an_erased_user_is_told_as_missed(urls: Urls, cache: SessionCache, writer: Session) -> None:
    async with cache.user_scope("ada").watch() as changes:
        await cache.erase_user("ada")
        change = await after(changes)
        assert (change.scope, change.keys, change.missed) == ("user", (), True)


async def test_a_server_that_says_nothing_any_more_is_left(
    urls: Urls, writer: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is broken without a word: a cable that was pulled."""
    monkeypatch.setattr(listening, "_SILENCE", 0.2)
    monkeypatch.setattr(listening, "_ANSWER", 0.5)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(urls.redis.removeprefix("unix://")))
        through = Urls(f"redis://127.0.0.1:{proxy.port}/0", urls.database)
        cache: SessionCache = await stack.enter_async_context(connect(through))
        found, listener = await cache.get("ada", "s1"), cache._tiers.listener
        async with found.watch() as changes:
            proxy.stall()
            revision = await writer.set("a", 2)
            await wait_until_async(lambda: not listener._confirmed, 10, "the silent connection to be left")
            proxy.resume()
            assert await told_until_scope(changes, "session") == Change("session", (), revision, missed=True)


async def test_whoever_may_not_announce_writes_all_the_same(urls: Urls, cache: SessionCache, writer: Session) -> None:
    with raw(urls.redis) as client:
        client.acl_setuser("mute", enabled=True, nopass=True, keys=["*"], commands=["+@all"], reset_channels=True)
    try:
        mute = urls.redis.replace("unix://", "unix://mute:x@")
        async with connect(Urls(mute, urls.database)) as other:
            found = await other.get("ada", "s1")
            async with writer.watch() as changes:
                revision = await found.set("a", 2)
                assert await writer.get("a") == 2
                assert await writer.set("b", 1) > revision
                assert [one[1:] for one in await told_until(changes, "b")] == [(("b",), True)]
            with pytest.raises(ConfigurationError, match="&PREFIX"):
                await found.watch().begin()
    finally:
        with raw(urls.redis) as client:
            client.acl_deluser("mute")


async def test_a_watch_that_cannot_begin_says_so_in_time(start_redis: StartRedis, sqlite_url: str) -> None:
    server = start_redis()
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url), timeout=0.5) as cache:
        found = await cache.create("ada")
        await asyncio.to_thread(server.kill)
        with pytest.raises(HotTierUnavailableError):
            await found.watch().begin()


async def test_a_watch_that_nobody_holds_any_more_is_forgotten(urls: Urls, cache: SessionCache) -> None:
    found = await cache.create("ada", session_id="s1")
    changes = found.watch()
    await changes.begin()
    assert listeners(urls, session("ada", "s1")) == 1
    del changes
    gc.collect()
    await found.set("a", 1)
    await wait_until_async(lambda: listeners(urls, session("ada", "s1")) == 0, 10, "the channel to be left")


async def test_watches_of_one_cache_share_a_connection(urls: Urls, cache: SessionCache, writer: Session) -> None:
    found = await cache.get("ada", "s1")
    async with found.watch() as one, found.watch() as two, cache.user_scope("ada").watch() as three:
        assert (listeners(urls, session("ada", "s1")), listeners(urls, user("ada"))) == (1, 1)
        with raw(urls.redis) as client:
            assert len(client.client_list(_type="pubsub")) == 1
        await writer.update({"b": 1, "user:b": 1})
        for changes in (one, two):
            assert await told_until(changes, "user:b") == [("session", ("b",), False), ("user", ("user:b",), False)]
        assert await told_until(three, "b") == [("user", ("b",), False)]
