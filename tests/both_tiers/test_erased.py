"""Erasing a user: what must not stay, and what must."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache import SessionCache
from sessioncache.durable.messages import Tombstone
from tests import durable_helpers
from tests.helpers import Urls, drain, evict, fetch, head_row, raw, session
from tests.keys import read_dump

SCOPE = session("ada", "s1")


async def test_the_names_of_namespaces_are_not_remembered_with_the_delete(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    await made.namespace("planted").set("k", 1)
    await cache.erase_user("ada")
    with raw(urls.redis) as client:
        assert "planted" not in repr(read_dump(client))


async def test_a_session_that_leaves_redis_while_both_tiers_are_read_is_erased_too(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create("ada", session_id="s1", state={"k": "planted"})
    hot, durable = cache._tiers.hot, cache._tiers.durable
    readings: dict[tuple[Any, str], Any] = {(hot, "unflushed"): hot.unflushed, (durable, "named"): durable.named}

    def leaving(read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def read_and_leave(*args: Any) -> Any:
            found = await read(*args)
            await drain(urls)
            evict(urls.redis)
            return found

        return read_and_leave

    for (tier, name), read in readings.items():
        monkeypatch.setattr(tier, name, leaving(read))
    await cache.erase_user("ada")
    head = head_row(urls.database, SCOPE)
    assert head is not None
    assert head[2]
    assert fetch(urls.database, "SELECT value FROM sessioncache_state WHERE value <> ''") == []


async def test_an_erasure_that_comes_late_takes_no_rows_of_a_session_that_lives_again(database_url: str) -> None:
    ref, owner = durable_helpers.session(), durable_helpers.user()
    async with durable_helpers.open_tier(database_url) as tier:
        await durable_helpers.put(tier, durable_helpers.dirt(ref, 20, {"k": b"1"}, birth=20, cleared=19))
        await tier.erase(owner, 10, [Tombstone(ref, 10)], durable_helpers.INCARNATION)
        assert await durable_helpers.values_of(tier, ref) == {"k": b"1"}


async def test_what_a_stopped_worker_still_holds_of_a_deleted_session_is_left_out(database_url: str) -> None:
    ref = durable_helpers.session()
    async with durable_helpers.open_tier(database_url) as tier:
        await durable_helpers.put(tier, durable_helpers.dirt(ref, 10, birth=3, cleared=10, deleted=True))
        for flushed in (0, 10):
            late = durable_helpers.dirt(ref, 5, {"k": b"1"}, birth=3, cleared=2, flushed=flushed)
            assert await durable_helpers.put(tier, late) == [(10, [None])]
            assert await durable_helpers.count_rows(tier, "state") == 0


async def test_erasures_and_flushes_of_the_same_sessions_do_not_deadlock(postgresql_url: str) -> None:
    owner, refs = durable_helpers.user(), [durable_helpers.session(f"s{i}") for i in range(40)]
    async with durable_helpers.open_tier(postgresql_url) as tier:

        async def flush() -> None:
            for at in range(100, 120):
                dead = [durable_helpers.dirt(ref, at, cleared=at, deleted=True) for ref in refs[::2]]
                living = [durable_helpers.dirt(ref, at, {"k": b"1"}, cleared=at - 1) for ref in refs[1::2]]
                await durable_helpers.put(tier, *dead, *living, durable_helpers.dirt(owner, at, {"k": b"1"}))

        async def erase() -> None:
            for at in range(100, 120):
                tombstones = [Tombstone(ref, at) for ref in refs[::3]]
                await tier.erase(owner, at, tombstones, durable_helpers.INCARNATION)

        await asyncio.gather(flush(), erase(), flush(), erase())
