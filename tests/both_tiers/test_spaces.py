"""Namespaces beside their session: forks, and what goes when a life is over."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Content
from sessioncache.operations.audit import compare
from sessioncache.primitives.scopes import ScopeRef, namespace_ref
from tests.conftest import StartRedis
from tests.faults.test_older_copies import CONFIG, Copies
from tests.helpers import Urls, connect, drain, session, upgrade
from tests.keys import check_keys

SCOPE = session("ada", "s1")
SPACE = namespace_ref(SCOPE, "tools")


async def test_a_fork_has_a_namespace_that_got_its_first_key_after_they_were_listed(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await cache.create("ada", session_id="s1", state={"k": 1})
    tools = made.namespace("tools")
    assert await tools.items() == []
    durable = cache._tiers.durable
    listed = durable.namespaces

    async def list_and_write(parent: ScopeRef) -> list[str]:
        found = await listed(parent)
        if not found:
            await tools.set("k", 1)
            await drain(urls)
            await made.set("k", 2)
        return found

    monkeypatch.setattr(durable, "namespaces", list_and_write)
    child = await cache.fork("ada", "s1")
    assert await child.get("k") == 2
    assert await child.namespace("tools").items() == [("k", 1)]


async def test_comparing_leaves_a_namespace_alone_that_lives_again(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await cache.create("ada", session_id="s1")).namespace("tools").set("k", 1)
    await drain(urls)
    hot = cache._tiers.hot
    peek = hot.peek

    async def peek_and_live_again(place: Place) -> Content | None:
        found = await peek(place)
        await cache.delete("ada", "s1")
        await (await cache.create("ada", session_id="s1")).namespace("tools").set("k", 2)
        return found

    monkeypatch.setattr(hot, "peek", peek_and_live_again)
    await compare(cache._tiers, SPACE.bucket, SPACE.member)
    monkeypatch.undo()
    assert await (await cache.get("ada", "s1")).namespace("tools").items() == [("k", 2)]


async def test_a_session_does_not_stay_pinned_by_a_namespace_of_a_life_that_is_over(
    start_redis: StartRedis, sqlite_url: str
) -> None:
    server = start_redis("valkey", **CONFIG)
    urls, copies = Urls(server.url, sqlite_url), Copies(server)
    await upgrade(sqlite_url)
    async with connect(urls) as cache:
        await (await cache.create("ada", session_id="s1")).namespace("tools").set("k", 1)
        copies.take()
        await cache.delete("ada", "s1")
        again = await cache.create("ada", session_id="s1", state={"a": 2})
        await drain(urls)
        copies.go_back()
        await again.refresh()
        await drain(urls)
        with server.client() as client:
            check_keys(client)
        assert await (await again.fork()).get("a") == 2
