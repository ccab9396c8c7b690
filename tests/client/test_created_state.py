"""A created session begins with what `get` would find, in the round trip that creates it where that is hot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from sessioncache import DurableTierUnavailableError, OutcomeUnknownError, SessionCache
from sessioncache.hot.client import HotClient, Reply
from sessioncache.hot.errors import unanswered
from sessioncache.primitives.deadline import within
from tests.client.conftest import cache, urls
from tests.helpers import Urls, drain, evict, settle

__all__ = ["cache", "urls"]

Beside = Callable[..., Awaitable[list[Reply]]]


class Counting:
    """How often a link sends something."""

    def __init__(self, link: HotClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._send = 0, link._send
        monkeypatch.setattr(link, "_send", self)

    async def __call__(self, packed: list[bytes], replies: int, **kind: bool) -> list[Reply]:
        """Send."""
        self.count += 1
        return await self._send(packed, replies, **kind)


def call_beside(cache: SessionCache, monkeypatch: pytest.MonkeyPatch, other: Callable[[Beside], Beside]) -> None:
    """Have another way to send a script with commands behind it."""
    monkeypatch.setattr(cache._tiers.link, "call_beside", other(cache._tiers.link.call_beside))


async def at_once() -> None:
    """There is room."""


async def test_where_all_is_hot_it_takes_no_round_trip_more(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await cache.create("ada", state={"user:u": 1, "app:p": 2})
    await first.fork()  # Redis knows the scripts from now on
    monkeypatch.setattr(cache._tiers.back_pressure, "admit", at_once)  # which asks Redis now and then
    sent = Counting(cache._tiers.link, monkeypatch)
    made = await cache.create("ada", state={"a": 3, "app:p": 4})
    assert sent.count == 1
    assert dict(made.state) == {"user:u": 1, "app:p": 4, "a": 3}
    sent.count = 0
    await first.fork()
    assert sent.count == 4
    sent.count = 0
    await made.refresh()
    assert sent.count == 1


async def test_what_is_cold_is_read_from_sql_first(urls: Urls, cache: SessionCache) -> None:
    parent = await cache.create("ada", session_id="s1", state={"a": 0, "user:u": 1, "app:p": 2})
    await settle(urls)
    made = await cache.create("ada", session_id="s2", state={"a": 3, "user:v": 4})
    assert dict(made.state) == {"user:u": 1, "app:p": 2, "a": 3, "user:v": 4}
    await settle(urls)
    assert dict((await parent.fork()).state) == {"user:u": 1, "app:p": 2, "a": 0, "user:v": 4}
    await settle(urls)
    assert dict((await cache.create("ada")).state) == {"user:u": 1, "app:p": 2, "user:v": 4}


async def test_nothing_is_created_or_forked_whose_state_cannot_be_read(
    urls: Urls, cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 2, "app:p": 3})
    await drain(urls)
    await parent.set("a", 2)
    evict(urls.redis)

    async def away(*_: object) -> Any:
        raise DurableTierUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(cache._tiers.durable, "read_scopes", away)
        calls: list[Callable[[], Awaitable[object]]] = [lambda: cache.create("ada"), parent.fork]
        for call in calls:
            with within(0.5), pytest.raises(DurableTierUnavailableError):
                await call()
    assert [one.id for one in (await cache.list("ada")).items] == ["s1"]


async def test_what_others_wrote_between_the_step_and_the_reading_is_read_once_more(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = cache.app_scope()
    await shared.update({"p": 1, "q": 1})

    def overtaken(inner: Beside) -> Beside:
        async def send(script: Any, keys: Any, args: Any, beside: Sequence[Any]) -> list[Reply]:
            replies = await inner(script, keys, args, ())
            await shared.update({"p": 2}, delete=["q"])
            return replies + await cache._tiers.link.exchange(beside, {})

        return send

    call_beside(cache, monkeypatch, overtaken)
    made = await cache.create("ada", state={"app:r": 3})
    assert dict(made.state) == {"app:p": 2, "app:r": 3}


async def test_r1_what_a_created_session_shares_is_of_one_moment(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await cache.create("ada", state={"user:n": 1, "app:n": 1})

    def overtaken(inner: Beside) -> Beside:
        async def send(script: Any, keys: Any, args: Any, beside: Sequence[Any]) -> list[Reply]:
            replies = await inner(script, keys, args, ())
            replies += await cache._tiers.link.exchange(beside[:1], {})
            await other.update({"user:n": 2, "app:n": 2})
            return replies + await cache._tiers.link.exchange(beside[1:], {})

        return send

    call_beside(cache, monkeypatch, overtaken)
    made = await cache.create("ada", state={"a": 3})
    assert dict(made.state) == {"a": 3, "user:n": 2, "app:n": 2}


async def test_a_creation_whose_answer_was_lost_has_the_whole_state(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create("ada", state={"user:u": 1, "app:p": 2})
    calls: list[bytes] = []

    def lossy(inner: Beside) -> Beside:
        async def send(script: Any, *rest: Any) -> list[Reply]:
            calls.append(script.sha)
            replies = await inner(script, *rest)
            if len(calls) == 1:
                raise unanswered("lost")
            return replies

        return send

    call_beside(cache, monkeypatch, lossy)
    made = await cache.create("ada", state={"a": 3})
    assert len(calls) == 2
    assert dict(made.state) == {"user:u": 1, "app:p": 2, "a": 3}
    assert len((await cache.list("ada")).items) == 2


async def test_a_creation_that_cannot_be_read_is_not_said_to_have_failed(
    cache: SessionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create("ada", state={"app:p": 2})

    def blind(inner: Beside) -> Beside:
        async def send(script: Any, keys: Any, args: Any, beside: Sequence[Any]) -> list[Reply]:
            replies = await inner(script, keys, args, ())
            cache._tiers.settings = type(cache._tiers.settings)(timeout=0.01)
            monkeypatch.setattr(cache._tiers.hot, "look", never)
            return replies + [{} for _ in beside]

        return send

    async def never(*_: Any) -> Any:
        raise unanswered("no answer")

    call_beside(cache, monkeypatch, blind)
    with pytest.raises(OutcomeUnknownError, match="session 's2' was created"):
        await cache.create("ada", session_id="s2")
