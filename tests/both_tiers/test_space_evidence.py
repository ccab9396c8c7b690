"""Namespaces in both tiers: what is evidence, what is amiss, and which revision they have."""

from __future__ import annotations

import pytest

from sessioncache import FlushTimeoutError, SessionCache, WriteLostError
from sessioncache.operations.audit import compare
from sessioncache.primitives.scopes import namespace_ref
from tests.helpers import Urls, drain, evict, raw, session

SPACE = namespace_ref(session("ada", "s1"), "tools")


async def test_flush_tells_that_redis_forgot_what_was_written_to_a_namespace(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    await drain(urls)
    tools = made.namespace("tools")
    await tools.set("k", 1)
    with raw(urls.redis) as client:
        client.flushall()
    with pytest.raises(WriteLostError):
        await tools.flush(3)


async def test_what_was_written_to_a_namespace_is_settled_by_the_delete_of_its_session(
    cache: SessionCache, urls: Urls
) -> None:
    made = await cache.create("ada", session_id="s1")
    await drain(urls)
    tools = made.namespace("tools")
    await tools.set("k", 1)
    await cache.delete("ada", "s1")
    with pytest.raises(FlushTimeoutError):
        await tools.flush(1)
    await drain(urls)
    await tools.flush(3)


async def test_a_namespace_that_is_the_same_in_both_tiers_is_not_amiss(cache: SessionCache, urls: Urls) -> None:
    await (await cache.create("ada", session_id="s1")).namespace("tools").set("k", 1)
    await drain(urls)
    assert await compare(cache._tiers, SPACE.bucket, SPACE.member)


async def test_a_namespace_keeps_its_revision_when_it_is_loaded_again(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1")
    tools = made.namespace("tools")
    revision = await tools.set("k", 1)
    await made.touch(messages=1)
    await drain(urls)
    evict(urls.redis)
    await tools.refresh()
    assert tools.revision == revision
    await tools.update({"k": 2}, if_revision=revision)
