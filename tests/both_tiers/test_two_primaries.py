"""R2, R14, R17: what one primary cleared or deleted reaches SQL, though another was flushed since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest

from sessioncache import SessionCache, SessionNotFoundError
from tests.helpers import Urls, connect, drain, evict, fetch, open_worker, raw

Contents = Mapping[str, tuple[int, bytes | None]]


def contents(urls: Urls) -> Contents:
    """All that Redis holds."""
    with raw(urls.redis) as client:
        return {name: (max(client.pttl(name), 0), client.dump(name)) for name in client.scan_iter("*")}


def promote(urls: Urls, kept: Contents, name: str) -> None:
    """Redis is now another primary, with these contents."""
    with raw(urls.redis) as client:
        client.flushall()
        for key, (milliseconds, value) in kept.items():
            client.restore(key, milliseconds, value or b"")
        for control in client.scan_iter("*:ctl"):
            client.hset(control, mapping={"replid": name * 40, "run": name})


async def clear(cache: SessionCache) -> None:
    await (await cache.get("ada", "s1")).clear()


async def clear_namespace(cache: SessionCache) -> None:
    await (await cache.get("ada", "s1")).namespace("tools").clear()


async def delete(cache: SessionCache) -> None:
    await cache.delete("ada", "s1")


async def recreate(cache: SessionCache) -> None:
    await delete(cache)
    await cache.create("ada", session_id="s1", state={"new": 1})


async def split(urls: Urls, change: Callable[[SessionCache], Awaitable[None]]) -> None:
    """One primary is changed and not flushed; one from before is written to and flushed; then it is the first again."""
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        await made.namespace("tools").set("a", 1)
        await drain(urls)
        await cache.flush(5)
        before = contents(urls)
        await change(cache)
        first = contents(urls)
    promote(urls, before, "1")
    async with connect(urls) as cache:
        made = await cache.get("ada", "s1")
        await made.set("b", 2)
        await made.rename("second")
        await made.touch(messages=2, tokens=5)
        await made.namespace("tools").set("b", 2)
        await drain(urls)
        await cache.flush(5)
    promote(urls, first, "2")


CASES: list[tuple[Callable[[SessionCache], Awaitable[None]], set[tuple[str, str]]]] = [
    (clear, {("", "b"), ("tools", "a"), ("tools", "b")}),
    (clear_namespace, {("", "a"), ("", "b"), ("tools", "b")}),
    (delete, set()),
]


async def settle(urls: Urls) -> None:
    """Flush what is revalidated, and find that the tiers agree."""
    for _ in range(3):
        await drain(urls)
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 0


def shown(urls: Urls) -> set[tuple[str, str]]:
    """The living keys of SQL's view, each with its namespace."""
    return {(name, key) for name, key in fetch(urls.database, "SELECT namespace, key FROM sessioncache_entries")}


@pytest.mark.parametrize(("change", "living"), CASES, ids=[change.__name__ for change, _ in CASES])
async def test_what_one_primary_ended_stays_so_though_another_was_flushed_since(
    urls: Urls, change: Callable[[SessionCache], Awaitable[None]], living: set[tuple[str, str]]
) -> None:
    await split(urls, change)
    async with connect(urls) as cache:
        await cache.get("ada", "s1") if change is not delete else None
        await settle(urls)
        assert shown(urls) == living
        if change is not delete:
            head = fetch(urls.database, "SELECT title, message_count, token_total FROM sessioncache_session")
            assert head == [("second", 2, 5)], "what was flushed of the head"
        ((rows,),) = fetch(urls.database, "SELECT count(*) FROM sessioncache_state")
        assert rows == len(living), "what is dead has left"
        evict(urls.redis)
        if change is delete:
            with pytest.raises(SessionNotFoundError):
                await cache.get("ada", "s1")
            return
        made = await cache.get("ada", "s1")
        assert (made.title, made.message_count, made.token_total) == ("second", 2, 5), "what was flushed of the head"
        tools = await made.namespace("tools").items()
        assert {("", key) for key in made.state} | {("tools", key) for key, _ in tools} == living


async def test_a_life_that_began_on_one_primary_reaches_sql_though_another_was_flushed_since(urls: Urls) -> None:
    await split(urls, recreate)
    async with connect(urls) as cache:
        await settle(urls)
        evict(urls.redis)
        made = await cache.get("ada", "s1")
        assert "a" not in made.state
        assert made.state["new"] == 1
        birth, cleared = fetch(urls.database, "SELECT birth, cleared FROM sessioncache_session")[0]
        ((oldest,),) = fetch(
            urls.database,
            "SELECT min(e.revision) FROM sessioncache_state e JOIN sessioncache_session h USING (scope_id)",
        )
        assert (cleared, oldest) == (birth - 1, birth), "nothing that is older is left"
