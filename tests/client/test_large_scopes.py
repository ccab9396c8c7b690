"""Scopes up to their limits: written, flushed, and loaded again in chunks."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache import LimitExceededError
from sessioncache.primitives.scopes import namespace_ref
from tests.helpers import Urls, app, connect, drain, evict, in_calls, raw, session, stored_values, user


async def test_a_scope_of_as_many_keys_as_there_may_be(urls: Urls) -> None:
    values = {f"k{number}": number for number in range(20_000)}
    async with connect(urls, timeout=30) as cache:
        scope = cache.app_scope()
        for some in in_calls(values):
            await scope.update(some)
        with pytest.raises(LimitExceededError):
            await scope.set("more", 1)
        await drain(urls)
        assert stored_values(urls.database, app()) == values
        evict(urls.redis)
        await scope.refresh()
        assert dict(scope.state) == values
        with pytest.raises(LimitExceededError):
            await scope.set("more", 1)
        await scope.update({"more": 1}, delete=["k0"])
        for some in in_calls(values):
            await scope.update({}, delete=some)
        await drain(urls)
        evict(urls.redis)
        await scope.refresh()
        assert dict(scope.state) == {"more": 1}
        assert stored_values(urls.database, app()) == {"more": 1}


async def test_a_scope_of_several_mebibytes_is_loaded_in_chunks_and_leaves_none_behind(urls: Urls) -> None:
    values = {f"k{number}": f"{number}" + "x" * 300_000 for number in range(20)}
    async with connect(urls, timeout=30) as cache:
        scope = cache.user_scope("ada")
        for key, value in values.items():
            await scope.set(key, value)
        await drain(urls)
        assert stored_values(urls.database, user("ada")) == values
        evict(urls.redis)
        await scope.refresh()
        assert dict(scope.state) == values
        await scope.set("k0", 1)
        assert await scope.get("k1") == values["k1"]
    with raw(urls.redis) as client:
        assert list(client.scan_iter(match="*:p:*")) == []


async def test_a_scope_of_more_bytes_than_allowed_is_refused(small_urls: Urls) -> None:
    text = "x" * (1024 * 1024 - 2)
    async with connect(small_urls, timeout=30) as cache:
        made = await cache.create("ada")
        for number in range(64):
            await made.set(f"k{number}", text)
        with pytest.raises(LimitExceededError):
            await made.set("more", 1)
        await made.set("k0", 1)
        await made.set("more", 1)
        assert await made.get("more") == 1


async def test_a_create_that_is_refused_for_its_size_can_be_tried_again_at_once(small_urls: Urls) -> None:
    state = {f"k{number}": number for number in range(20_001)}
    async with connect(small_urls, timeout=30) as cache:
        with pytest.raises(LimitExceededError):
            await cache.create("ada", session_id="s1", state=state)
        with raw(small_urls.redis) as client:
            names: list[Any] = [name for control in client.scan_iter(match="*:ctl") for name in client.hkeys(control)]
        assert not [name for name in names if name.startswith(b"t:")], "there is no token to wait for"
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        assert dict(made.state) == {"a": 1}


@pytest.mark.parametrize("values", [{f"temp:k{n}": n for n in range(2_500)}, {"temp:k": "x" * 300_000}])
async def test_a_session_with_many_temp_keys_is_opened(urls: Urls, values: dict[str, int | str]) -> None:
    async with connect(urls, timeout=30) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        for some in in_calls(values):
            await made.update(some)
        await made.refresh()
        for _ in range(2):
            found = await cache.get("ada", "s1")
            assert dict(found.state) == {"a": 1, **values}


async def test_a_large_namespace_is_looked_at_like_any_other(urls: Urls) -> None:
    async with connect(urls, timeout=30) as cache:
        made = await cache.create("ada", session_id="s1")
        values = {f"k{n}": n for n in range(2_500)}
        for some in in_calls(values):
            await made.namespace("n").update(some)
        await drain(urls)
        hot = cache._tiers.hot
        content = await hot.peek(hot.layout.place(namespace_ref(session("ada", "s1"), "n")))
        assert content is not None
        assert len(content.entries) == len(values)
