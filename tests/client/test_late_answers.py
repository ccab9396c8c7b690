"""Calls of one handle that are answered in another order than Redis worked on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sessioncache import FlushTimeoutError, Session, SessionCache
from tests.client.conftest import cache, urls
from tests.helpers import HeldAnswer, Urls, connect, drain, session, stored_values

__all__ = ["cache", "urls"]

Call = Callable[[Session], Awaitable[object]]

WRITES: dict[str, tuple[Call, Call]] = {
    "another key": (lambda s: s.set("a", 1), lambda s: s.set("b", 2)),
    "the same key": (lambda s: s.set("a", 1), lambda s: s.set("a", 2)),
    "a clear first": (lambda s: s.clear(), lambda s: s.set("b", 2)),
    "a clear last": (lambda s: s.set("a", 1), lambda s: s.clear()),
    "an increment": (lambda s: s.set("b", 1), lambda s: s.increment("a")),
    "a touch": (lambda s: s.set("a", 1), lambda s: s.touch(messages=3)),
}


@pytest.mark.parametrize("writes", WRITES.values(), ids=WRITES)
async def test_r11_a_late_answer_of_what_is_flushed_makes_no_later_write_durable(
    cache: SessionCache, urls: Urls, writes: tuple[Call, Call]
) -> None:
    first, second = writes
    ada = await cache.create("ada", session_id="s1", state={"a": 0, "b": 0})
    await drain(urls)
    await ada.flush()
    held = HeldAnswer(cache._tiers.hot, "write")
    late = asyncio.ensure_future(first(ada))
    await held.worked.wait()
    await drain(urls)
    await second(ada)
    held.release.set()
    await late
    with pytest.raises(FlushTimeoutError):
        await ada.flush(0.2)
    await drain(urls)
    await ada.flush()
    assert stored_values(urls.database, session("ada", "s1")) == dict(ada.state)


async def test_r5_a_late_answer_hides_no_newer_title(cache: SessionCache) -> None:
    ada = await cache.create("ada", session_id="s1")
    held = HeldAnswer(cache._tiers.hot, "touch")
    late = asyncio.ensure_future(ada.touch(messages=1))
    await held.worked.wait()
    await ada.rename("new")
    held.release.set()
    await late
    assert (ada.info.title, ada.info.message_count) == ("new", 1)


@pytest.mark.parametrize("write", [lambda s: s.set("k", 1), lambda s: s.clear()], ids=["a set", "a clear"])
async def test_r5_a_late_answer_hides_nothing_that_was_read_meanwhile(
    cache: SessionCache, urls: Urls, write: Call
) -> None:
    ada = await cache.create("ada", session_id="s1", state={"k": 0})
    held = HeldAnswer(cache._tiers.hot, "write")
    late = asyncio.ensure_future(write(ada))
    await held.worked.wait()
    async with connect(urls) as other:
        await (await other.get("ada", "s1")).set("k", 2)
    assert await ada.get("k") == 2
    held.release.set()
    await late
    assert dict(ada.state) == {"k": 2}


async def test_what_a_clear_or_a_delete_did_not_find_is_not_in_the_state(cache: SessionCache, urls: Urls) -> None:
    ada = await cache.create("ada", session_id="s1", state={"a": 1, "b": 2, "user:c": 3})
    async with connect(urls) as other:
        found = await other.get("ada", "s1")
        await found.update({}, delete=["a", "user:c"])
        assert not await ada.delete("a")
        assert not await ada.delete("user:c")
        assert dict(ada.state) == {"b": 2}
        await found.clear()
    assert await ada.clear() == 0
    assert dict(ada.state) == {}
