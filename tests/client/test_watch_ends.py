"""Watching: who waits is neither forgotten nor left waiting, whoever else reads, ends, is cancelled or goes away."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from sessioncache import (
    Change,
    ConfigurationError,
    HotTierUnavailableError,
    Session,
    SessionCache,
    SessionNotFoundError,
)
from sessioncache.hot import subscriptions as listening
from sessioncache.hot.subscriptions import Announcement
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.revisions import ZERO, encode_revision
from sessioncache.watch import Watch
from tests.conftest import StartRedis
from tests.helpers import Stall, Urls, connect, raw, scope_key, session, upgrade
from tests.waiting import stretched, wait_until_async

_CHANNEL = scope_key(session("ada", "s1")).replace(":h:", ":w:")


async def _after(changes: Watch) -> Change:
    """The next change, which has to come."""
    async with asyncio.timeout(stretched(20)):
        return await anext(changes)


async def _ended(waiting: asyncio.Future[Change]) -> BaseException | None:
    """How waiting for a change ended, which it has to soon."""
    await asyncio.wait([waiting], timeout=stretched(3))
    return waiting.exception() if waiting.done() else None


@pytest.fixture
async def found(small_cache: SessionCache) -> Session:
    """A new session, all of whose scopes have been in use."""
    return await small_cache.create("ada", session_id="s1", state={"user:u": 1, "app:p": 1})


def _listener(cache: SessionCache) -> Any:
    return cache._tiers.listener


# ---- several tasks


async def test_one_of_two_tasks_that_begin_may_be_cancelled(found: Session) -> None:
    changes = found.watch()
    one, two = asyncio.create_task(_after(changes)), asyncio.create_task(_after(changes))
    await asyncio.sleep(0)
    one.cancel()
    await changes.begin()
    await found.set("a", 1)
    assert (await two).keys == ("a",)


def _told(changes: Watch, revision: bytes, before: bytes, *keys: str) -> bytes:
    """What a script announces of the session."""
    return Announcement(b"w", revision, before, keys, changes._incarnations[KeyScope.SESSION]).payload()


async def test_r5_while_one_task_looks_no_other_is_told_of_another_life(
    small_cache: SessionCache, found: Session
) -> None:
    async with found.watch() as changes:
        reading = Stall(small_cache._tiers.hot, "read")
        changes.interrupted()
        tasks = [asyncio.create_task(_after(changes))]
        await reading.reached.wait()
        later = encode_revision(found.revision + 10)
        changes.heard(_CHANNEL.encode(), _told(changes, later, later, "of another life"))
        tasks.append(asyncio.create_task(_after(changes)))
        await asyncio.sleep(0.01)
        await small_cache.delete("ada", "s1")
        reading.release.set()
        assert [type(await _ended(task)) for task in tasks] == [SessionNotFoundError] * 2


async def test_what_is_on_its_way_while_a_task_looks_is_not_missed(small_cache: SessionCache, found: Session) -> None:
    async with found.watch() as changes:
        telling = Stall(_listener(small_cache), "_tell")
        reading = Stall(small_cache._tiers.hot, "read")
        await found.set("b", 1)
        await telling.reached.wait()
        changes.interrupted()
        told = asyncio.create_task(told_of_session(changes))
        await reading.reached.wait()
        reading.release.set()
        await asyncio.sleep(0.05)
        telling.release.set()
        assert await told == Change("session", ("b",), found.revision, missed=False)


async def told_of_session(changes: Watch) -> Change:
    """The next change of the session's own keys."""
    change = await _after(changes)
    while change.scope != "session":
        change = await _after(changes)
    return change


async def test_r5_after_the_end_of_a_session_nothing_is_told_any_more(
    small_cache: SessionCache, found: Session
) -> None:
    async with found.watch() as changes, small_cache.user_scope("ada").watch() as shared:
        await small_cache.delete("ada", "s1")
        with pytest.raises(SessionNotFoundError):
            await _after(changes)
        assert changes not in _listener(small_cache)._sinks[_CHANNEL.encode()]
        again = await small_cache.create("ada", session_id="s1", state={"new": 1, "user:last": 1})
        assert (await _after(shared)).keys == ("last",)
        late = _told(changes, encode_revision(again.revision), changes._latest[KeyScope.SESSION], "new")
        changes.heard(_CHANNEL.encode(), late)
        with pytest.raises(SessionNotFoundError):
            await _after(changes)


async def test_r5_what_follows_an_end_that_was_not_announced_is_not_told(small_urls: Urls, found: Session) -> None:
    with raw(small_urls.redis) as client:
        client.acl_setuser("mute", enabled=True, nopass=True, keys=["*"], commands=["+@all"], reset_channels=True)
    try:
        mute = Urls(small_urls.redis.replace("unix://", "unix://mute:x@"), small_urls.database)
        async with connect(mute) as silent, connect(small_urls) as loud, found.watch() as changes:
            await silent.delete("ada", "s1")
            await silent.create("ada", session_id="s1")
            await (await loud.get("ada", "s1")).set("new", 1)
            with pytest.raises(SessionNotFoundError):
                await _after(changes)
    finally:
        with raw(small_urls.redis) as client:
            client.acl_deluser("mute")


async def test_a_task_that_watches_is_kept_though_nobody_holds_it(small_cache: SessionCache, found: Session) -> None:
    told: list[Change] = []

    async def follow() -> None:
        async for change in found.watch():
            told.append(change)
            return

    asyncio.create_task(follow())  # noqa: RUF006
    await wait_until_async(lambda: len(_listener(small_cache)._confirmed) > 3, 10, "the watch to begin")
    await found.refresh()
    gc.collect()
    await found.set("a", 1)
    await wait_until_async(lambda: bool(told), 10, "the change to be told")
    assert [change.keys for change in told] == [("a",)]


# ---- the end


async def test_closing_a_watch_ends_whoever_waits_also_while_redis_is_away(
    small_cache: SessionCache, found: Session
) -> None:
    async with found.watch() as changes:
        reading = Stall(small_cache._tiers.hot, "read")
        changes.interrupted()
        waiting = asyncio.create_task(_after(changes))
        await reading.reached.wait()
        await changes.aclose()
        assert isinstance(await _ended(waiting), StopAsyncIteration)


async def test_closing_the_cache_ends_a_watch_that_begins(small_urls: Urls) -> None:
    async with connect(small_urls) as cache:
        found = await cache.create("ada")
        reading = Stall(cache._tiers.hot, "read")
        waiting = asyncio.create_task(_after(found.watch()))
        await reading.reached.wait()
        await cache.aclose()
        assert isinstance(await _ended(waiting), ConfigurationError)


@pytest.mark.parametrize("watched", [False, True])
async def test_no_watch_of_a_closed_cache_begins(small_urls: Urls, watched: bool) -> None:
    async with connect(small_urls) as cache:
        found = await cache.create("ada")
        if watched:
            await found.watch().begin()
    async with asyncio.timeout(stretched(2)):
        with pytest.raises(ConfigurationError, match="closed"):
            await found.watch().begin()
    assert _listener(cache)._connection is None


async def test_a_watch_is_refused_on_another_event_loop(found: Session) -> None:
    async with found.watch() as changes:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(_after(changes)))


async def test_when_the_task_that_hears_is_cancelled_watches_end_and_new_ones_begin(
    small_cache: SessionCache, found: Session
) -> None:
    async with found.watch() as changes:
        _listener(small_cache)._task.cancel()
        with pytest.raises(ConfigurationError):
            await _after(changes)
    async with found.watch() as changes:
        await found.set("a", 1)
        assert (await _after(changes)).keys == ("a",)


# ---- nothing lost, nothing left behind


async def test_temp_keys_that_were_missed_are_told_also_when_looking_failed_meanwhile(
    small_cache: SessionCache, found: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = small_cache._tiers.hot
    async with found.watch() as changes:

        async def fail(*_: object) -> Any:
            monkeypatch.undo()
            changes.interrupted()
            raise HotTierUnavailableError("away")

        monkeypatch.setattr(hot, "read", fail)
        changes.heard(changes._places[KeyScope.APP].channel, b"?")
        assert (await _after(changes)).scope == "temp"


async def test_a_slow_reader_of_large_changes_is_told_sooner_that_it_missed_something(found: Session) -> None:
    keys, revision = tuple(f"k{number}" for number in range(1_000)), found.revision
    async with found.watch() as changes:
        for later in range(revision + 1, revision + 22):
            told = _told(changes, encode_revision(later), encode_revision(later - 1), *keys)
            changes.heard(_CHANNEL.encode(), told)
        assert await _after(changes) == Change("session", (), revision + 21, missed=True)


async def test_what_nobody_understands_is_an_interruption(
    small_urls: Urls, small_cache: SessionCache, found: Session
) -> None:
    async with found.watch() as changes:
        with raw(small_urls.redis) as client:
            garbage = b"w" + 2 * ZERO + b"none|=\xff"
            client.execute_command("SPUBLISH", _CHANNEL, garbage)  # type: ignore[no-untyped-call]
        assert (await _after(changes)).missed
        revision = await found.set("a", 1)
        while (await _after(changes)).revision != revision:
            pass


async def test_r16_no_name_of_a_temp_key_comes_into_a_log(found: Session, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with found.watch() as changes:
            await found.set("temp:seldom", 1)
            assert (await _after(changes)).keys == ("temp:seldom",)
    assert "seldom" not in caplog.text


async def test_a_connection_that_was_dropped_is_not_used_again_by_whoever_leaves_a_channel(
    small_cache: SessionCache, found: Session
) -> None:
    """Before a fork; it would connect itself anew, with no subscription."""
    listener, other = _listener(small_cache), await small_cache.create("bob")
    async with found.watch() as changes:
        async with other.watch():
            pass
        telling = Stall(listener, "_tell")
        await other.set("a", 1)
        await telling.reached.wait()
        await small_cache._tiers.drop_idle()
        telling.release.set()
        await found.set("a", 1)
        told = [await _after(changes), await _after(changes)]
        assert {change.scope for change in told} == {"session", "temp"}


async def test_channels_that_nobody_watches_any_more_are_left_though_they_tell_nothing(
    small_urls: Urls, small_cache: SessionCache, found: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_SILENCE", 0.1)
    async with small_cache.app_scope().watch():
        async with found.watch():
            pass
        with raw(small_urls.redis) as client:
            numbers = client.pubsub_shardnumsub
            await wait_until_async(lambda: numbers(_CHANNEL) == [(_CHANNEL.encode(), 0)], 10, "the channel to be left")
        assert len(_listener(small_cache)._sinks) == 2


async def test_while_redis_is_away_nobody_connects_for_those_who_listen_no_more(
    start_redis: StartRedis, sqlite_url: str
) -> None:
    server = start_redis()
    await upgrade(sqlite_url)
    async with connect(Urls(server.url, sqlite_url), timeout=0.5) as cache:
        found, listener = await cache.create("ada"), _listener(cache)
        async with found.watch():
            await asyncio.to_thread(server.kill)
            await wait_until_async(lambda: not listener._confirmed, 10, "the connection to break")
            with pytest.raises(HotTierUnavailableError):
                await cache.user_scope("bob").watch().begin()
        await wait_until_async(lambda: not listener._needed.is_set(), 10, "the listener to rest")
        assert not listener._sinks
        assert not listener._awaited
