"""Erasing a user: nothing readable of the user stays in either tier, and nobody else loses anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sessioncache.operations.erase_user
from sessioncache import DurableTierUnavailableError, SessionCache, SessionNotFoundError, StaleSessionError
from sessioncache.operations.erase_user import ErasureReport
from sessioncache.operations.export import FORMAT
from tests.helpers import (
    Urls,
    connect,
    dirty,
    drain,
    evict,
    fetch,
    head_row,
    open_worker,
    raw,
    session,
    stored_values,
    user,
)
from tests.traces import ADA, TRACE, named, neighbour, plant, traces
from tests.worker.poison import accept_poison, refuse_poison


async def settle(urls: Urls, *, cold: bool) -> None:
    """Flush all, and evict all or nothing."""
    await drain(urls)
    if cold:
        assert evict(urls.redis) > 0


async def test_no_trace_is_left_whatever_state_things_were_in(cache: SessionCache, urls: Urls) -> None:
    other = await cache.create(neighbour(), session_id="s", state={"a": 1, "user:u": 1, "app:p": 1})
    await other.namespace("tools").set("x", 1)
    await plant(cache, "deleted long ago")
    await settle(urls, cold=False)
    await cache.delete(ADA, named("deleted long ago"))
    await settle(urls, cold=True)
    await plant(cache, "cold")
    await settle(urls, cold=True)
    forked = await cache.fork(ADA, named("cold"), new_id=named("fork"))
    await settle(urls, cold=False)
    await plant(cache, "deleted")
    await settle(urls, cold=False)
    await cache.delete(ADA, named("deleted"))
    await plant(cache, "flushed")
    await plant(cache, "changed")
    await settle(urls, cold=False)
    await plant(cache, "new")
    await cache.rename(ADA, named("changed"), named("another title"))
    changed = await cache.get(ADA, named("changed"))
    await changed.update({named("more"): 1}, delete=["list"])
    await changed.namespace(named("late")).set(named("key"), 1)
    assert traces(urls, TRACE)
    report = await cache.erase_user(ADA)
    # cold, fork, flushed, new: 4 + 2 each; changed: 4 + 3; and a key of the user's scope for each that was planted
    assert report == ErasureReport(sessions=5, entries=4 * 6 + 7 + 6)
    assert traces(urls, TRACE) == []
    for handle in (forked, changed):
        with pytest.raises(SessionNotFoundError):
            await handle.get("list")
    await assert_untouched(cache, urls)
    await drain(urls)
    assert traces(urls, TRACE) == []
    assert dirty(urls.redis) == 0


async def assert_untouched(cache: SessionCache, urls: Urls) -> None:
    """The neighbour has everything, hot and in SQL."""
    await drain(urls)
    found = await cache.get(neighbour(), "s")
    assert dict(found.state) == {"a": 1, "user:u": 1, "app:p": 1}
    assert await found.namespace("tools").items() == [("x", 1)]
    evict(urls.redis)
    assert await cache.export_user(neighbour()) == {
        "format": FORMAT,
        "org": "",
        "app": "app",
        "user": neighbour(),
        "state": {"u": 1},
        "sessions": [await cache.export_session(neighbour(), "s")],
    }
    assert await found.namespace("tools").items() == [("x", 1)]
    assert [one.id for one in (await cache.list()).items] == ["s"]


async def letters(urls: Urls) -> None:
    """Let what the database refuses become dead letters, and flush the rest."""
    async with open_worker(urls, max_attempts=1, flush_delay=0.01) as worker:
        await worker.flush_once()
        await worker.flush_once()


async def test_dead_letters_go_too(cache: SessionCache, urls: Urls) -> None:
    refuse_poison(urls.database)
    made = await cache.create(ADA, session_id=named("s"), state={"poison": named("v"), "user:poison": named("v")})
    await made.namespace(named("tools")).set("poison", named("v"))
    await cache.create(neighbour(), session_id="s", state={"poison": 1})
    await letters(urls)
    report = await cache.erase_user(ADA)
    assert report == ErasureReport(sessions=1, entries=3)
    assert traces(urls, TRACE) == []
    with raw(urls.redis) as client:
        keys = client.scan_iter(match="sessioncache:*:dead")
        dead: list[Any] = [name for key in keys for name in client.hkeys(key)]
    assert [name[:33].decode() for name in dead] == [session(neighbour(), "s").member]
    accept_poison(urls.database)
    await (await cache.get(neighbour(), "s")).set("poison", 2)
    await drain(urls)


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
async def test_the_report_counts_each_key_once(cache: SessionCache, urls: Urls, cold: bool) -> None:
    made = await cache.create(ADA, session_id="s1", state={"a": 1, "b": 1, "gone": 1, "user:u": 1, "temp:t": 1})
    await made.namespace("one").update({"a": 1, "b": 1})
    await made.namespace("two").set("a", 1)
    await cache.create(ADA, session_id="empty")
    await cache.create(ADA, session_id="gone", state={"a": 1})
    await cache.delete(ADA, "gone")
    await settle(urls, cold=cold)
    if not cold:  # what SQL lacks counts, what it has too many does not
        await made.update({"c": 1}, delete=["gone"])
        await made.namespace("one").clear()
        await made.namespace("three").set("a", 1)
    assert await cache.erase_user(ADA) == ErasureReport(sessions=2, entries=7 if cold else 6)


async def test_an_unknown_user_and_a_user_that_was_erased_have_nothing(cache: SessionCache, urls: Urls) -> None:
    nothing = ErasureReport(sessions=0, entries=0)
    assert await cache.erase_user(named("nobody")) == nothing
    await plant(cache, "s")
    await settle(urls, cold=False)
    assert (await cache.erase_user(ADA)).sessions == 1
    for _ in range(2):
        assert await cache.erase_user(ADA) == nothing
        assert traces(urls, TRACE) == []


CREATIONS: dict[str, Callable[[SessionCache], Awaitable[Any]]] = {
    "create": lambda cache: cache.create(ADA),
    "create with an id": lambda cache: cache.create(ADA, session_id="s"),
    "get or create": lambda cache: cache.get_or_create(ADA, "s"),
    "set of the user's scope": lambda cache: cache.user_scope(ADA).set("u", 1),
    "delete of the user's scope": lambda cache: cache.user_scope(ADA).update({}, delete=["u"]),
    "append to the user's scope": lambda cache: cache.user_scope(ADA).append("u", 1),
}


@pytest.mark.parametrize("call", CREATIONS)
async def test_nothing_new_of_the_user_is_let_in_for_a_while(
    small_cache: SessionCache, small_urls: Urls, call: str
) -> None:
    await small_cache.erase_user(ADA)
    with pytest.raises(StaleSessionError):
        await CREATIONS[call](small_cache)
    assert traces(small_urls, TRACE) == []
    await small_cache.create(neighbour(), session_id="s", state={"user:u": 1})
    assert traces(small_urls, TRACE) == []
    await drain(small_urls)


async def test_the_user_may_be_read_meanwhile_and_has_nothing(cache: SessionCache, urls: Urls) -> None:
    await plant(cache, "s")
    await cache.erase_user(ADA)
    assert await cache.user_scope(ADA).get("u", "nothing") == "nothing"
    with pytest.raises(SessionNotFoundError):
        await cache.get(ADA, named("s"))
    assert (await cache.list(ADA)).items == []
    assert not await cache.delete(ADA, named("s"))
    assert traces(urls, TRACE) == [], "what is read leaves no trace either"
    assert await cache.erase_user(ADA) == ErasureReport(sessions=0, entries=0)
    assert traces(urls, TRACE) == []


async def test_a_session_that_is_evicted_during_the_search_is_found(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(cache, "s")
    named_there = cache._tiers.durable.named

    async def read(*of: Any) -> Any:
        await settle(urls, cold=True)
        return await named_there(*of)

    monkeypatch.setattr(cache._tiers.durable, "named", read)
    assert (await cache.erase_user(ADA)).sessions == 1
    assert traces(urls, TRACE) == []


async def test_after_a_while_the_user_may_come_back_under_the_right_name(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(cache, "s")
    await settle(urls, cold=False)
    monkeypatch.setattr(sessioncache.operations.erase_user, "GRACE", 0.05)
    await cache.erase_user(ADA)
    made, created = None, False
    while made is None:
        try:
            made, created = await cache.get_or_create(ADA, named("s"), state={"a": 1, "user:u": 1})
        except StaleSessionError:
            continue
    assert created
    assert dict(made.state) == {"a": 1, "user:u": 1}
    for _ in range(2):
        await drain(urls)
        evict(urls.redis)
        assert dict((await cache.get(ADA, named("s"))).state) == {"a": 1, "user:u": 1}
        (info,) = (await cache.list(ADA)).items
        assert (info.user, info.id, info.title, info.message_count) == (ADA, named("s"), "", 0)
    assert stored_values(urls.database, user(ADA)) == {"u": 1}
    assert stored_values(urls.database, session(ADA, named("s"))) == {"a": 1}
    assert fetch(urls.database, "SELECT user_id FROM sessioncache_user_scope") == [(ADA,)]
    assert fetch(urls.database, "SELECT user_id, session_id FROM sessioncache_session WHERE NOT deleted") == [
        (ADA, named("s"))
    ]
    report = await cache.erase_user(ADA)
    assert (report, traces(urls, TRACE)) == (ErasureReport(sessions=1, entries=2), [])


async def test_who_reads_meanwhile_and_writes_after_a_while_is_stored_under_the_right_name(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessioncache.operations.erase_user, "GRACE", 0.3)
    scope = cache.user_scope(ADA)
    await scope.set("u", 1)
    await cache.erase_user(ADA)
    written = None
    while written is None:
        await scope.refresh()
        try:
            written = await scope.set("u", 2)
        except StaleSessionError:
            continue
    await drain(urls)
    assert stored_values(urls.database, user(ADA)) == {"u": 2}
    assert fetch(urls.database, "SELECT user_id FROM sessioncache_user_scope") == [(ADA,)]


async def test_tombstones_without_a_name_stay_for_their_retention(cache: SessionCache, urls: Urls) -> None:
    await plant(cache, "s")
    await settle(urls, cold=False)
    await cache.erase_user(ADA)
    head = head_row(urls.database, session(ADA, named("s")))
    assert head is not None
    assert head[2]
    async with open_worker(urls) as worker:
        assert await worker._janitor.purge() == 0
        assert await worker._janitor.compare_sample(100) == 0
    assert fetch(urls.database, "SELECT count(*) FROM sessioncache_state") == [(0,)]


async def test_the_same_user_of_another_app_is_another_user(cache: SessionCache, urls: Urls) -> None:
    async with connect(urls, app="other") as other:
        await other.create(ADA, session_id="s", state={"a": 1, "user:u": 1})
        await plant(cache, "s")
        await cache.erase_user(ADA)
        assert dict((await other.get(ADA, "s")).state) == {"a": 1, "user:u": 1}
        await other.user_scope(ADA).set("u", 2)
        await drain(urls)
    assert stored_values(urls.database, user(ADA, "other")) == {"u": 2}


async def test_a_namespace_that_was_only_read_leaves_no_trace(cache: SessionCache, urls: Urls) -> None:
    made = await plant(cache, "s")
    assert await made.namespace(named("never written")).get("k") is None
    await settle(urls, cold=False)
    await cache.erase_user(ADA)
    assert traces(urls, TRACE) == []


async def test_a_second_erasure_finds_what_came_back_with_an_older_redis(cache: SessionCache, urls: Urls) -> None:
    made = await plant(cache, "s")
    await settle(urls, cold=False)
    with raw(urls.redis) as client:
        keys: list[Any] = [*client.scan_iter("*:h:*"), *client.scan_iter("*:spaces")]
        older = {key: (max(0, client.pttl(key)), client.dump(key) or b"") for key in keys}
        await cache.erase_user(ADA)
        assert traces(urls, TRACE) == []
        for key, (ttl, content) in older.items():
            client.restore(key, ttl, content, replace=True)
    assert traces(urls, TRACE)
    await cache.erase_user(ADA)
    with pytest.raises(SessionNotFoundError):
        await made.get("list")
    assert traces(urls, TRACE) == []


async def test_a_user_of_many_sessions_is_erased_in_pieces_and_goes_on_where_it_broke_off(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        await cache.create(ADA, session_id=named(f"s{number}"), state={"k": 1})
    await settle(urls, cold=True)
    erase, sizes = cache._tiers.durable.erase, list[int]()

    async def note(ref: Any, revision: int, tombstones: Any, incarnation: str) -> None:
        if len(sizes) == 1:
            raise DurableTierUnavailableError("away")
        sizes.append(len(tombstones))
        await erase(ref, revision, tombstones, incarnation)

    monkeypatch.setattr(cache._tiers.durable, "erase", note)
    with pytest.raises(DurableTierUnavailableError):
        await cache.erase_user(ADA)
    assert sizes == [256]
    monkeypatch.setattr(cache._tiers.durable, "erase", erase)
    rest = await cache.erase_user(ADA)
    assert rest.sessions <= 44, "those of the first piece are not looked at again"
    assert traces(urls, TRACE) == []


async def test_the_rows_of_large_sessions_go_in_small_transactions(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create(ADA, session_id=named("s"), state={f"k{number}": 1 for number in range(25)})
    await settle(urls, cold=False)
    monkeypatch.setattr(sessioncache.operations.erase_user, "_ROWS", 10)
    erase_rows, sizes = cache._tiers.durable.erase_rows, list[int]()

    async def note(*args: Any) -> int:
        sizes.append(await erase_rows(*args))
        return sizes[-1]

    monkeypatch.setattr(cache._tiers.durable, "erase_rows", note)
    assert await cache.erase_user(ADA) == ErasureReport(sessions=1, entries=25)
    assert sizes == [10, 10, 5]
    assert traces(urls, TRACE) == []
