"""R14, R17: the janitor removes what is dead and old, and has put right what differs between the tiers."""

from __future__ import annotations

import time

import pytest

from sessioncache import SessionNotFoundError
from tests.helpers import (
    Urls,
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

SHORT = 0.01
"""Seconds of retention, so that all tombstones are past it soon."""


def rows(urls: Urls) -> set[tuple[str, bool]]:
    """Keys in SQL, and whether each is deleted."""
    return {
        (key, bool(deleted)) for key, deleted in fetch(urls.database, "SELECT key, deleted FROM sessioncache_state")
    }


async def test_r14_tombstones_are_purged_after_the_retention_and_nothing_else_is(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"keep": 1, "gone": 1, "user:gone": 1})
        await cache.create("ada", session_id="dead", state={"of the dead": 1})
        await drain(urls)
        await made.update({}, delete=["gone", "user:gone"])
        await cache.delete("ada", "dead")
        await drain(urls)
        async with open_worker(urls) as worker:
            assert await worker._janitor.purge() == 0, "they are kept for days"
        async with open_worker(urls, retention=SHORT) as worker:
            purged = 0

            async def purge() -> bool:
                nonlocal purged
                purged += await worker._janitor.purge()
                return purged >= 3

            await wait_until_async(purge, 5, "the tombstones are past their retention")
            assert await worker._janitor.purge() == 0
        assert (purged, rows(urls)) == (3, {("keep", False)})
        assert head_row(urls.database, session("ada", "dead")) is None
        evict(urls.redis)
        assert dict((await cache.get("ada", "s1")).state) == {"keep": 1}
        with pytest.raises(SessionNotFoundError):
            await cache.get("ada", "dead")
        again = await cache.create("ada", session_id="dead")
        assert dict(again.state) == {}
        await drain(urls)


async def test_r14_a_purge_of_many_tombstones_goes_in_small_transactions(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={f"k{number}": 1 for number in range(1_200)})
        await drain(urls)
        await made.update({}, delete=[f"k{number}" for number in range(1_200)])
        await drain(urls)
        async with open_worker(urls, retention=SHORT) as worker:
            began, purged = time.monotonic(), 0
            while purged < 1_200 and time.monotonic() - began < 5:
                purged += await worker._janitor.purge()
        assert (purged, rows(urls)) == (1_200, set())
        await drain(urls)


async def test_r17_the_janitor_flushes_again_what_sql_lost(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 1, "user:u": 1})
        await drain(urls)
        execute(urls.database, "DELETE FROM sessioncache_state WHERE key = 'a'")
        async with open_worker(urls) as worker:
            assert await worker._janitor.compare_sample(100) == 1
        assert dirty(urls.redis) == 1
        await drain(urls)
        assert stored_values(urls.database, session("ada", "s1")) == {"a": 1, "b": 1}
        async with open_worker(urls) as worker:
            assert await worker._janitor.compare_sample(100) == 0
        assert await made.get("a") == 1


async def test_r17_the_janitor_flushes_a_session_again_whose_head_sql_lost(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.create("ada", session_id="empty")
        await drain(urls)
        execute(urls.database, "DELETE FROM sessioncache_session")
        async with open_worker(urls) as worker:
            assert await worker._janitor.compare_sample(100) == 2
        await drain(urls)
        assert stored_values(urls.database, session("ada", "s1")) == {"a": 1}
        assert stored_values(urls.database, session("ada", "empty")) == {}


async def test_r17_the_janitor_has_a_field_revalidated_that_redis_lost(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 1})
        await drain(urls)
        with raw(urls.redis) as client:
            client.hdel(scope_key(session("ada", "s1")), "=a")
        assert await made.get("a") is None
        async with open_worker(urls) as worker:
            assert await worker._janitor.compare_sample(100) == 1
            assert await made.get("a") == 1
            assert await worker._janitor.compare_sample(100) == 0
        assert await drain(urls) == 0, "the head tells SQL that the session is another; no row does"
        assert dirty(urls.redis) == 0


async def test_r17_the_janitor_has_a_value_revalidated_that_sql_has_newer(urls: Urls) -> None:
    async with connect(urls) as cache:
        scope = cache.user_scope("ada")
        await scope.set("a", 1)
        await drain(urls)
        execute(urls.database, "UPDATE sessioncache_state SET value = '2', revision = revision + 1000000000")
        async with open_worker(urls) as worker:
            assert await worker._janitor.compare_sample(100) == 1
        assert await scope.get("a") == 2
        assert await scope.increment("a") == 3
        await drain(urls)
        assert stored_values(urls.database, user("ada")) == {"a": 3}


async def test_the_janitor_leaves_what_is_dirty_and_what_agrees_alone(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="clean", state={"a": 1})
        await drain(urls)
        await cache.create("ada", session_id="dirty", state={"a": 1})
        before = dirty(urls.redis)
        async with open_worker(urls) as worker:
            assert await worker._janitor.compare_sample(100) == 0
        assert dirty(urls.redis) == before == 1
        await drain(urls)


async def test_a_pass_of_the_janitor_comes_to_every_scope(urls: Urls) -> None:
    async with connect(urls) as cache:
        for number in range(30):
            await cache.create("ada", session_id=f"s{number}", state={"a": 1})
        await drain(urls)
        execute(urls.database, "DELETE FROM sessioncache_state")
        async with open_worker(urls) as worker:
            found = [await worker._janitor.compare_sample(7) for _ in range(6)]
        assert sum(found) == 30
        await drain(urls)
