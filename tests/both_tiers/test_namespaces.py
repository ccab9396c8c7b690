"""Namespaces beside the rest: what looks like a difference between the tiers and is none, and what flush() says."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache import FlushTimeoutError, SessionCache, SessionNotFoundError
from sessioncache.primitives.revisions import DIGITS, decode_revision, encode_revision
from sessioncache.primitives.scopes import namespace_ref
from tests.helpers import (
    Urls,
    connect,
    dirty,
    drain,
    execute,
    fetch,
    open_worker,
    raw,
    scope_key,
    session,
    stored_namespaces,
)
from tests.keys import check_keys

SCOPE = session("ada", "s1")
TOOLS = namespace_ref(SCOPE, "tools")


async def test_the_janitor_finds_nothing_amiss_in_a_clean_namespace(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    await made.namespace("tools").set("a", 1)
    await drain(urls)
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 0
    with raw(urls.redis) as client:
        assert not client.hexists(scope_key(TOOLS), "y"), "it is not to be revalidated"


async def test_the_janitor_drops_a_namespace_whose_session_is_a_tombstone_in_sql_alone(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1")
    await made.namespace("tools").set("a", 1)
    await drain(urls)
    await cache.delete("ada", "s1")
    await drain(urls)
    with raw(urls.redis) as client:
        assert client.delete(scope_key(SCOPE)) == 1, "the tombstone is evicted, the namespace is not"
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 0
    with raw(urls.redis) as client:
        assert not client.exists(scope_key(TOOLS))
    assert dirty(urls.redis) == 0, "nothing of a session that is gone is flushed again"


async def test_the_janitor_keeps_a_namespace_whose_living_session_is_not_hot(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    await made.namespace("tools").set("a", 1)
    await drain(urls)
    with raw(urls.redis) as client:
        client.delete(scope_key(SCOPE))
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 0
    with raw(urls.redis) as client:
        assert client.exists(scope_key(TOOLS))


async def test_a_namespace_that_was_loaded_is_not_older_than_its_session(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    assert await made.namespace("tools").items() == [], "SQL knows neither of them"
    with raw(urls.redis) as client:
        fields: Any = client.hgetall(scope_key(TOOLS))
        assert len(fields[b"r"]) == DIGITS
        assert fields[b"r"] >= fields[b"b"]
        check_keys(client)


async def test_flush_is_content_where_what_was_cleared_died_with_its_session(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.clear()
    await made.namespace("tools").set("a", 1)
    await made.namespace("tools").clear()
    await cache.delete("ada", "s1")
    await drain(urls)
    with raw(urls.redis) as client:
        client.delete(scope_key(SCOPE))
    await made.flush(60)
    await cache.flush(60)


async def test_flush_is_content_where_the_session_lives_again_since_it_was_cleared(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.clear()
    await cache.delete("ada", "s1")
    again = await cache.create("ada", session_id="s1", state={"b": 1})
    await drain(urls)
    with raw(urls.redis) as client:
        client.delete(scope_key(SCOPE))
    await again.set("b", 2)
    assert dirty(urls.redis) == 1, "nobody flushes it"
    await made.flush(60)
    await drain(urls)


async def test_flush_waits_for_the_tombstone_of_a_session_whose_namespace_was_written(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1")
    await drain(urls)
    tools = made.namespace("tools")
    await tools.set("a", 1)
    async with connect(urls) as other:
        await other.delete("ada", "s1")
    with pytest.raises(FlushTimeoutError):
        await tools.flush(0.3)
    await drain(urls)
    await tools.flush(5)


async def test_a_session_is_not_in_sql_before_what_it_was_created_with(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.namespace("tools").set("a", 1)
    async with open_worker(urls) as worker:
        await worker._check()
        assert await worker.flusher.flush([(TOOLS.bucket, TOOLS.member)]) == 0
        with raw(urls.redis) as client:
            client.flushall()
        with pytest.raises(SessionNotFoundError):
            await cache.get("ada", "s1")


async def test_a_namespace_is_flushed_where_its_session_has_a_dead_letter(cache: SessionCache, urls: Urls) -> None:
    execute(
        urls.database,
        "CREATE TRIGGER refuse BEFORE INSERT ON sessioncache_state WHEN NEW.value LIKE '%poison%'"
        " BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    made = await cache.create("ada", session_id="s1", state={"a": "poison"})
    await made.namespace("tools").set("a", 1)
    await drain(urls)
    await made.namespace("tools").flush(60)
    rows = fetch(urls.database, "SELECT namespace, value FROM sessioncache_state")
    assert rows == [("tools", "1")]
    await made.namespace("tools").set("a", 2)
    async with open_worker(urls) as worker:
        await worker._check()
        assert await worker.flusher.flush([(TOOLS.bucket, TOOLS.member)]) == 1


async def test_a_worker_that_revalidates_a_namespace_takes_from_sql_what_redis_lost(
    cache: SessionCache, urls: Urls
) -> None:
    tools = (await cache.create("ada", session_id="s1")).namespace("tools")
    await tools.set("a", 1)
    await drain(urls)
    await tools.set("b", 2)
    with raw(urls.redis) as client:
        client.hdel(scope_key(TOOLS), "=a")
        client.hset(scope_key(TOOLS), "y", "1")
    await drain(urls)
    assert await tools.items() == [("a", 1), ("b", 2)]


async def test_a_session_is_not_pinned_for_a_namespace_of_a_life_that_is_over(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    await made.namespace("tools").set("a", 1)
    async with open_worker(urls) as worker:
        await worker._check()
        await worker.flusher.flush([(SCOPE.bucket, SCOPE.member)])
    with raw(urls.redis) as client:
        assert client.pttl(scope_key(SCOPE)) == -1, "pinned with its namespace"
        birth: Any = client.hget(scope_key(SCOPE), "b")
        another = encode_revision(decode_revision(birth) - 1)
        client.hset(scope_key(SCOPE), "b", another)  # as where Redis forgot, and SQL told of another life
        await drain(urls)
        assert not client.exists(scope_key(TOOLS))
        assert client.pttl(scope_key(SCOPE)) > 0


async def test_what_was_flushed_of_a_namespace_in_an_earlier_life_is_not_awaited_in_sql(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.namespace("tools").set("k", 1)
    await drain(urls)
    await cache.delete("ada", "s1")
    async with open_worker(urls) as worker:
        flush = worker._tiers.durable.flush

        async def with_a_new_life(batch: Any, **options: Any) -> Any:
            monkeypatch.setattr(worker._tiers.durable, "flush", flush)
            again = await cache.create("ada", session_id="s1", state={"b": 2})
            await again.namespace("tools").set("k2", 2)
            return await flush(batch, **options)

        monkeypatch.setattr(worker._tiers.durable, "flush", with_a_new_life)
        await worker.flush_once()
    with raw(urls.redis) as client:
        assert not client.hexists(scope_key(TOOLS), "f"), "that goes with the tombstone"
    await drain(urls)
    assert stored_namespaces(urls.database, SCOPE) == {"": {"b": 2}, "tools": {"k2": 2}}
