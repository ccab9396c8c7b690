"""Retention: sessions go some time after their last activity, all of them durable before, from both tiers."""

from __future__ import annotations

from time import time_ns
from typing import Any

import pytest
from sessioncache_worker import FlushWorker

from sessioncache import ConfigurationError, Session, SessionCache, SessionNotFoundError
from sessioncache.operations.retention import expire
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.retention_record import Retention
from sessioncache.primitives.revisions import ZERO, encode_revision
from tests.helpers import (
    Urls,
    app,
    connect,
    dirty,
    drain,
    evict,
    execute,
    fetch,
    head_row,
    open_worker,
    raw,
    scope_key,
    session,
    stored_values,
    user,
)
from tests.waiting import wait_until_async

SECOND = 1_000_000
KEPT = 1_000.0
"""Seconds of retention."""
FAR = 2**52
"""A time far ahead (µs)."""
SHORT = 0.05
"""Seconds for which tombstones are kept where they are to be over soon."""


async def kept_for(urls: Urls, seconds: float, name: str = "app") -> None:
    """Note how long the sessions of an app are kept."""
    async with connect(urls, app=name, retention=seconds) as cache:
        with pytest.raises(SessionNotFoundError):
            await cache.get("nobody", "none")


async def expired(urls: Urls, at: int) -> int:
    """Delete what is past its retention when the clock of Redis says so (µs); how many."""
    async with open_worker(urls) as worker:
        set_clock(worker, at)
        return await expire(worker._tiers)


def set_clock(worker: FlushWorker, at: int) -> None:
    """Let a worker that asks Redis for the time hear this one (µs)."""
    link: Any = worker._tiers.link
    command = link.command

    async def told(*parts: Any) -> Any:
        return [b"%d" % (at // SECOND), b"%d" % (at % SECOND)] if parts == (b"TIME",) else await command(*parts)

    link.command = told


async def end(cache: SessionCache, name: str) -> int:
    """When a session that is not used again is past its retention of `KEPT` (µs)."""
    used = (await cache.get("ada", name)).updated_at
    return round(used.timestamp() * SECOND) + int(KEPT) * SECOND


async def ids(cache: SessionCache) -> set[str]:
    """The sessions that are listed."""
    return {one.id for one in (await cache.list()).items}


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
async def test_a_session_goes_after_its_last_activity_from_both_tiers(urls: Urls, cold: bool) -> None:
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="old", state={"a": 1, "temp:t": 1, "user:u": 1, "app:p": 1})
        await made.namespace("tools").set("x", 1)
        await drain(urls)
        at = await end(cache, "old")
        if cold:
            evict(urls.redis)
        assert await expired(urls, at) == 1
        assert await ids(cache) == set()
        with pytest.raises(SessionNotFoundError):
            await made.get("a")
        await drain(urls)
        assert fetch(urls.database, "SELECT count(*) FROM sessioncache_state WHERE namespace <> '' OR key = 'a'") == [
            (0,)
        ], "the rows went with the flush of the tombstone"
        assert stored_values(urls.database, user("ada")) == {"u": 1}, "what is shared stays"
        assert await cache.app_scope().get("p") == 1
        assert await expired(urls, at) == 0
        with raw(urls.redis) as client:
            assert client.hget(scope_key(session("ada", "old")), "=a") is None
        evict(urls.redis)
        with pytest.raises(SessionNotFoundError):
            await cache.get("ada", "old")


async def test_the_head_goes_after_the_retention_of_tombstones(urls: Urls) -> None:
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="old", state={"a": 1})
        await drain(urls)
        at = await end(cache, "old")
        await expired(urls, at)
        await drain(urls)
    assert head_row(urls.database, session("ada", "old")) is not None
    async with open_worker(urls, retention=SHORT) as worker:

        async def purged() -> bool:
            await worker._janitor.purge()
            return head_row(urls.database, session("ada", "old")) is None

        await wait_until_async(purged, 5, "the tombstone is past its retention")


async def test_only_what_is_old_goes(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.create("ada", session_id="s2", state={"a": 1})
        await drain(urls)
        at = await end(cache, "s2")
        await cache.create("ada", session_id="s3", state={"a": 1})
        await drain(urls)
        await kept_for(urls, KEPT)
        assert await expired(urls, at) == 2
        assert await ids(cache) == {"s3"}
        assert await expired(urls, at) == 0
        await drain(urls)


SAVING: dict[str, Any] = {
    "touch": lambda cache, found: cache.touch("ada", "s1"),
    "rename": lambda cache, found: found.rename("in use"),
    "set": lambda cache, found: found.set("a", 2),
    "namespace": lambda cache, found: found.namespace("tools").set("x", 2),
}


@pytest.mark.parametrize("use", SAVING)
async def test_what_is_in_use_is_kept_before_and_after_its_flush(small_urls: Urls, use: str) -> None:
    urls = small_urls
    async with connect(urls) as cache:
        found = await cache.create("ada", session_id="s1", state={"a": 1})
        await found.namespace("tools").set("x", 1)
        await cache.create("ada", session_id="s2", state={"a": 1})
        await drain(urls)
        at = await end(cache, "s2")
        await SAVING[use](cache, found)
        await kept_for(urls, KEPT)
        assert await expired(urls, at) == 1, "the other one"
        await drain(urls)
        assert await ids(cache) == {"s1"}
        last = (await cache.get("ada", "s1")).updated_at
        evict(urls.redis)
        assert (await cache.get("ada", "s1")).updated_at == last
        await drain(urls)


async def test_a_use_that_sql_did_not_know_of_saves_a_session(urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect(urls) as cache, open_worker(urls) as worker:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        at = await end(cache, "s1")
        unused = worker._tiers.durable.unused_sessions

        async def used_meanwhile(*args: Any) -> Any:
            found = await unused(*args)
            await cache.touch("ada", "s1")
            await drain(urls)
            evict(urls.redis)
            return found

        monkeypatch.setattr(worker._tiers.durable, "unused_sessions", used_meanwhile)
        await kept_for(urls, KEPT)
        set_clock(worker, at)
        assert await expire(worker._tiers) == 0
        assert await ids(cache) == {"s1"}
        await cache.get("ada", "s1")


async def test_only_what_is_old_is_looked_at(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls) as worker:
        made = [await cache.create("ada", session_id=name) for name in ("s1", "s2")]
        await cache.create("ada", session_id="gone")
        await drain(urls)
        await cache.delete("ada", "gone")
        await drain(urls)
        for many in (1, 2):
            before = round(made[many - 1].updated_at.timestamp() * 1_000_000)
            found = await worker._tiers.durable.unused_sessions(app().id, before, (0, ""), 10, FAR)
            assert {head.session for _, head in found} == {one.id for one in made[:many]}
        assert await worker._tiers.durable.unused_sessions(app().id, FAR, (0, ""), 10, 0) == [], (
            "their heads came later"
        )


async def _edit(found: Session) -> None:
    async with found.edit() as draft:
        draft["temp:t"] = 1


USES: dict[str, Any] = {
    "get": lambda cache, found: found.get("a"),
    "refresh": lambda cache, found: found.refresh(),
    "records": lambda cache, found: found.records(),
    "temp": lambda cache, found: found.set("temp:t", 1),
    "edit of temp": lambda cache, found: _edit(found),
    "user": lambda cache, found: found.increment("user:n"),
    "app": lambda cache, found: found.set("app:x", 1),
    "namespace": lambda cache, found: found.namespace("tools").items(),
    "export": lambda cache, found: found.export(),
    "fork": lambda cache, found: found.fork(),
    "a new handle": lambda cache, found: cache.get("ada", "s1"),
}


@pytest.mark.parametrize("use", USES)
async def test_whatever_a_handle_does_keeps_its_session(small_urls: Urls, use: str) -> None:
    urls = small_urls
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        evict(urls.redis)
        execute(urls.database, "UPDATE sessioncache_session SET updated = updated - 500000000")
        cache._tiers.usage.told(await cache._tiers.durable.read_layout())
        found = await cache.get("ada", "s1") if use != "a new handle" else None
        found = found and await _unnoted(urls, found)
        before, seen = time_ns() // 1_000, found and (found.info, found.revision)
        await USES[use](cache, found)
        assert field(urls, "j") > encode_revision(before - 1)
        again = await cache.get("ada", "s1")
        assert seen in (None, (again.info, again.revision))
        await drain(urls)
        evict(urls.redis)
        assert await expired(urls, before + int(SECOND * KEPT * 15 / 16) - SECOND) == 0
        evict(urls.redis)
        assert await expired(urls, time_ns() // 1_000 + int(SECOND * KEPT)) >= 1
        assert "s1" not in await ids(cache)
        await drain(urls)


def field(urls: Urls, name: str) -> bytes:
    """A head field of the session."""
    with raw(urls.redis) as client:
        found: Any = client.hget(scope_key(session("ada", "s1")), name)
    return bytes(found or b"")


async def _unnoted(urls: Urls, found: Session) -> Session:
    """The same, as if its use had not been noted yet."""
    await drain(urls)
    with raw(urls.redis) as client:
        client.hdel(scope_key(session("ada", "s1")), "j")
    found._in_use._last, found._in_use._asked = ZERO, 0.0
    return found


async def test_use_that_is_known_from_lately_costs_nothing(small_urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect(small_urls, retention=KEPT) as cache:
        found = await cache.create("ada", session_id="s1", state={"a": 1})
        await found.get("a")
        asked: list[object] = []
        monkeypatch.setattr(cache._tiers.hot, "use", asked.append)
        for name in USES:
            await USES[name](cache, found)
        assert asked == []
        assert field(small_urls, "j") == b""
        await drain(small_urls)


async def test_a_session_that_is_used_while_it_is_found_to_be_unused_is_kept(
    small_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = small_urls
    async with connect(urls) as cache, open_worker(urls) as worker:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        at = await end(cache, "s1")
        unused = worker._tiers.durable.unused_sessions

        async def used_meanwhile(*args: Any) -> Any:
            found = await unused(*args)
            place = (await cache.get("ada", "s1"))._places()[KeyScope.SESSION]
            await cache._tiers.hot.use(place, field(urls, "b"), 0)
            await drain(urls)
            evict(urls.redis)
            return found

        monkeypatch.setattr(worker._tiers.durable, "unused_sessions", used_meanwhile)
        await kept_for(urls, KEPT)
        set_clock(worker, at)
        assert await expire(worker._tiers) == 0
        assert await ids(cache) == {"s1"}


async def test_processes_learn_how_long_others_keep_sessions(small_urls: Urls) -> None:
    await kept_for(small_urls, KEPT)
    async with connect(small_urls) as cache:
        found = await cache.create("ada", session_id="s1")
        app_id = found._places()[KeyScope.SESSION].parents[:32]
        await wait_until_async(lambda: cache._tiers.usage.interval(app_id) is not None, 5, "it is read from SQL")
        assert cache._tiers.usage.interval(app_id) == KEPT * SECOND / 16
        await drain(small_urls)


async def test_a_use_that_was_noted_lately_is_not_noted_again(urls: Urls) -> None:
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        found = await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        at = await end(cache, "s1")
        assert await found.get("a") == 1
        await found.set("user:u", 1)
        await found.set("temp:t", 1)
        assert await expired(urls, at) == 1
        await drain(urls)


@pytest.mark.parametrize("part", ["plain", "namespace"])
async def test_what_is_not_durable_yet_is_kept(urls: Urls, part: str) -> None:
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        found = await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        await (found if part == "plain" else found.namespace("tools")).set("a", 2)
        at = await end(cache, "s1")
        with raw(urls.redis) as client:  # as if the head had been flushed without it
            client.hset(scope_key(session("ada", "s1")), "u", "-" * 9)
        assert await expired(urls, at) == 0
        assert await found.get("a") == (2 if part == "plain" else 1)
        assert dirty(urls.redis) > 0
        await cache.touch("ada", "s1")
        await drain(urls)
        assert await ids(cache) == {"s1"}
        at = await end(cache, "s1")
        assert await expired(urls, at) == 1, "it goes once it is"
        await drain(urls)


async def test_sessions_are_kept_for_ever_unless_told_otherwise(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        at = await end(cache, "s1")
        assert await expired(urls, at) == 0
        await kept_for(urls, KEPT)
        await kept_for(urls, 0)
        assert await expired(urls, at) == 0
        async with connect(urls) as silent:
            await silent.get("ada", "s1")
        assert await expired(urls, at) == 0
        await kept_for(urls, KEPT)
        async with connect(urls) as silent:
            await silent.get("ada", "s1")
        assert await expired(urls, at) == 1, "who says nothing changes nothing"
        await drain(urls)


async def test_each_app_has_its_own(urls: Urls) -> None:
    async with connect(urls, app="one") as one, connect(urls, app="two") as two:
        for cache in (one, two):
            await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        at = max([await end(cache, "s1") for cache in (one, two)])
        await kept_for(urls, KEPT, "two")
        await kept_for(urls, 2 * KEPT, "one")
        assert await expired(urls, at) == 1
        assert (await ids(one), await ids(two)) == ({"s1"}, set())
        await drain(urls)


async def test_many_go_in_one_round(urls: Urls) -> None:
    async with connect(urls) as cache:
        for number in range(230):
            await cache.create(f"u{number}", session_id="s1")
        await cache.create("ada", session_id="last")
        await drain(urls)
        at = await end(cache, "last")
        await kept_for(urls, KEPT)
        assert await expired(urls, at) == 231
        assert await ids(cache) == set()
        await drain(urls)


async def test_the_janitor_sees_to_it(urls: Urls) -> None:
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        async with open_worker(urls, flush_delay=0.01, janitor=0.05) as worker:
            await worker.flush_once()
            at = await end(cache, "s1")
            set_clock(worker, at)
            await worker._janitor.turn()
        assert await ids(cache) == set()
        await drain(urls)


async def test_a_session_that_is_created_again_has_nothing_of_before(urls: Urls) -> None:
    await kept_for(urls, KEPT)
    async with connect(urls) as cache:
        found = await cache.create("ada", session_id="s1", state={"a": 1})
        await found.namespace("tools").set("x", 1)
        await drain(urls)
        at = await end(cache, "s1")
        assert await expired(urls, at) == 1
        again = await cache.create("ada", session_id="s1", state={"b": 1})
        for _ in range(2):
            assert dict((await cache.get("ada", "s1")).state) == {"b": 1}
            assert await again.namespace("tools").items() == []
            await drain(urls)
            evict(urls.redis)


@pytest.mark.parametrize("seconds", [-1, True, "1", float("inf"), float("nan")])
def test_a_retention_that_makes_no_sense_is_refused(seconds: Any) -> None:
    with pytest.raises(ConfigurationError):
        SessionCache.connect("unix:///x", "sqlite:///x", app="app", retention=seconds)


def test_it_is_noted_under_the_apps_id() -> None:
    assert Retention("o", "a", 1).name != Retention("", "oa", 1).name
