"""R11, R14: what is evidence that a clear is durable, and what its flush leaves in SQL."""

from __future__ import annotations

import logging

import pytest

from sessioncache import DeadLetterError, FlushTimeoutError, SessionCache
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import namespace_ref
from sessioncache.session import Session
from tests.helpers import (
    BUCKETS,
    Urls,
    connect,
    drain,
    evict,
    execute,
    fetch,
    open_worker,
    raw,
    scope_key,
    session,
)

SCOPE = session("ada", "s1")
TOOLS = namespace_ref(SCOPE, "tools")


async def cleared(cache: SessionCache, urls: Urls) -> Session:
    """A session whose keys SQL has, just cleared."""
    made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 2})
    await drain(urls)
    assert await made.clear() == 2
    return made


async def test_a_clear_is_shown_by_sql_once_the_session_has_left_redis(cache: SessionCache, urls: Urls) -> None:
    made = await cleared(cache, urls)
    await drain(urls)
    evict(urls.redis)
    await made.flush(60)
    assert made._unflushed is not None
    assert made._unflushed.pending() == []
    with raw(urls.redis) as client:
        assert not client.exists(scope_key(SCOPE)), "settled by what SQL shows"


async def test_a_clear_is_shown_by_a_later_one_whatever_was_written_since(cache: SessionCache, urls: Urls) -> None:
    made = await cleared(cache, urls)
    other = await cache.get("ada", "s1")
    await other.set("c", 1)
    await other.clear()
    await other.set("c", 2)
    await drain(urls)
    evict(urls.redis)
    await made.flush(60)
    with raw(urls.redis) as client:
        assert not client.exists(scope_key(SCOPE)), "settled by what SQL shows"


async def test_a_clear_is_shown_by_a_later_delete(cache: SessionCache, urls: Urls) -> None:
    made = await cleared(cache, urls)
    async with connect(urls) as other:
        await other.erase_user("ada")
    await made.flush(60)


async def test_a_clear_is_not_durable_before_it_is_flushed_though_sql_has_no_key(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1")
    await drain(urls)
    await made.set("a", 1)
    await made.clear()
    assert fetch(urls.database, "SELECT key FROM sessioncache_state") == []
    with pytest.raises(FlushTimeoutError):
        await made.flush(1)


async def test_a_clear_is_not_shown_while_the_head_in_sql_tells_of_an_older_one(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cleared(cache, urls)
    await drain(urls)
    evict(urls.redis)
    execute(urls.database, "UPDATE sessioncache_session SET cleared = cleared - 1, flushed = 0")
    with pytest.raises(FlushTimeoutError):
        await made.flush(1)


async def test_the_flush_of_a_clear_takes_the_rows_out_of_sql_and_leaves_the_rest(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1, "app:x": 1})
    tools, skills = made.namespace("tools"), made.namespace("skills")
    await tools.update({"a": 1, "b": 2})
    await skills.set("a", 1)
    await drain(urls)
    await made.clear()
    await tools.clear()
    await tools.set("c", 3)
    await drain(urls)
    await cache.flush(5)
    rows = fetch(urls.database, "SELECT namespace, key FROM sessioncache_state ORDER BY 1, 2")
    assert rows == [("", "u"), ("", "x"), ("skills", "a"), ("tools", "c")]
    evict(urls.redis)
    again = await cache.get("ada", "s1")
    assert dict(again.state) == {"user:u": 1, "app:x": 1}
    assert dict(await again.namespace("tools").items()) == {"c": 3}
    assert dict(await again.namespace("skills").items()) == {"a": 1}


async def test_what_was_written_of_a_session_before_it_was_deleted_and_created_again_leaves_sql(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.namespace("tools").set("a", 1)
    await drain(urls)
    await cache.delete("ada", "s1")
    again = await cache.create("ada", session_id="s1", state={"b": 1})
    await drain(urls)
    await cache.flush(5)
    assert fetch(urls.database, "SELECT namespace, key FROM sessioncache_state") == [("", "b")]
    assert fetch(urls.database, "SELECT namespace FROM sessioncache_namespace") == []
    await again.namespace("tools").set("b", 1)
    await drain(urls)
    assert dict(await again.namespace("tools").items()) == {"b": 1}
    assert not await cache._tiers.backlog.is_older()


async def test_a_namespace_loaded_in_a_new_life_that_sql_does_not_know_is_not_older_than_it_was(
    cache: SessionCache, urls: Urls, caplog: pytest.LogCaptureFixture
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.namespace("tools").set("a", 1)
    await drain(urls)
    await cache.delete("ada", "s1")
    again = await cache.create("ada", session_id="s1")
    assert await again.namespace("tools").items() == [], "clean, in a session that is dirty"
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 0
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []
    await drain(urls)
    await again.namespace("tools").set("b", 1)
    await drain(urls)
    assert not await cache._tiers.backlog.is_older()
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 0


async def test_a_clear_of_a_namespace_reaches_sql_beside_what_it_refuses(cache: SessionCache, urls: Urls) -> None:
    tools = (await cache.create("ada", session_id="s1")).namespace("tools")
    await tools.update({"a": 1, "b": 2})
    await drain(urls)
    refuse = "BEGIN SELECT RAISE(ABORT, 'no'); END"
    bad = "WHEN NEW.value = '\"poison\"'"
    execute(urls.database, f"CREATE TRIGGER refuse BEFORE INSERT ON sessioncache_state {bad} {refuse}")
    await tools.clear()
    await tools.update({"bad": "poison", "c": 3})
    async with open_worker(urls) as worker:
        for _ in range(3):
            await worker._check()
            await worker._flush(await worker._claim(list(range(BUCKETS)), everything=True))
    with pytest.raises(DeadLetterError):
        await tools.flush(5)
    assert fetch(urls.database, "SELECT key FROM sessioncache_state") == [("c",)]
    ((cleared,),) = fetch(urls.database, "SELECT cleared FROM sessioncache_namespace")
    with raw(urls.redis) as client:
        assert encode_revision(cleared) == client.hget(scope_key(TOOLS), "c")


async def test_a_clear_of_a_session_takes_the_rows_along_though_a_namespace_is_flushed_first(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 2})
    tools = made.namespace("tools")
    await tools.set("a", 1)
    await drain(urls)
    await tools.set("a", 2)
    assert await made.clear() == 2
    async with open_worker(urls) as worker:
        for scope in (TOOLS, SCOPE):
            await worker.flusher.flush([(scope.bucket, scope.member)])
            ((told,),) = fetch(urls.database, "SELECT cleared FROM sessioncache_session")
            with raw(urls.redis) as client:
                assert client.hget(scope_key(SCOPE), "c") == encode_revision(told), "the namespace's flush tells it"
            assert fetch(urls.database, "SELECT namespace, key FROM sessioncache_state") == [("tools", "a")]
    await cache.flush(10)


async def test_a_namespace_that_is_loaded_knows_what_was_cleared_of_it(cache: SessionCache, urls: Urls) -> None:
    tools = (await cache.create("ada", session_id="s1")).namespace("tools")
    await tools.set("a", 1)
    await tools.clear()
    await drain(urls)
    await cache.flush(5)
    ((cleared,),) = fetch(urls.database, "SELECT cleared FROM sessioncache_namespace")
    evict(urls.redis)
    assert await tools.items() == []
    with raw(urls.redis) as client:
        assert client.hget(scope_key(TOOLS), "c") == encode_revision(cleared)
