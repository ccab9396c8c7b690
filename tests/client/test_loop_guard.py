"""A cache elsewhere than at home says so at the first call: on another event loop, and in a forked child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from sessioncache import Session, SessionCache
from sessioncache.errors import ConfigurationError
from tests.client.conftest import small_urls, urls
from tests.forking import in_child
from tests.helpers import Urls, connect
from tests.waiting import stretched

__all__ = ["small_urls", "urls"]

Opening = Callable[[Urls, AsyncExitStack], Coroutine[Any, Any, SessionCache]]


async def by_urls(urls: Urls, _: AsyncExitStack) -> SessionCache:
    """A cache over connections of its own."""
    cache: SessionCache = await connect(urls)
    return cache


async def over_clients(urls: Urls, callers: AsyncExitStack) -> SessionCache:
    """A cache over a caller's client and engine, that has been used."""
    cache = await unused_over_clients(urls, callers)
    await cache.list()
    return cache


async def unused_over_clients(urls: Urls, callers: AsyncExitStack) -> SessionCache:
    """A cache over a client and an engine that `callers` closes: the cache leaves them open."""
    engine = create_async_engine(urls.database.replace("sqlite:", "sqlite+aiosqlite:"))
    client = Redis.from_url(urls.redis)
    callers.push_async_callback(engine.dispose)
    callers.push_async_callback(client.aclose)
    return SessionCache(client, engine, app="app", timeout=stretched(5.0))


CALLS: dict[str, Callable[[SessionCache, Session], Coroutine[Any, Any, object]]] = {
    "get": lambda cache, _: cache.get("ada", "s1"),
    "create": lambda cache, _: cache.create("ada"),
    "list": lambda cache, _: cache.list(),
    "flush": lambda cache, _: cache.flush(),
    "set": lambda _, session: session.set("a", 2),
    "refresh": lambda _, session: session.refresh(),
}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs only when it is told to."""
    made = asyncio.new_event_loop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


@pytest.fixture
def callers(loop: asyncio.AbstractEventLoop) -> Iterator[AsyncExitStack]:
    """What a caller opened, closed on its loop after the test."""
    opened = AsyncExitStack()
    yield opened
    loop.run_until_complete(opened.aclose())


@pytest.mark.parametrize("opening", [by_urls, over_clients])
def test_on_another_event_loop_every_call_is_one_clear_error(
    small_urls: Urls, opening: Opening, loop: asyncio.AbstractEventLoop, callers: AsyncExitStack
) -> None:
    cache = loop.run_until_complete(opening(small_urls, callers))
    session = loop.run_until_complete(cache.create("ada", session_id="s1", state={"a": 1}))
    for call in CALLS.values():
        with pytest.raises(ConfigurationError, match="was opened on another event loop"):
            asyncio.run(asyncio.wait_for(call(cache, session), stretched(5)))
    assert loop.run_until_complete(session.get("a")) == 1
    loop.run_until_complete(cache.aclose())


@pytest.mark.parametrize("name", CALLS)
def test_in_a_forked_child_every_call_is_one_clear_error(
    small_urls: Urls, name: str, loop: asyncio.AbstractEventLoop, callers: AsyncExitStack
) -> None:
    cache = loop.run_until_complete(by_urls(small_urls, callers))
    session = loop.run_until_complete(cache.create("ada", session_id="s1", state={"a": 1}))
    call = CALLS[name]
    expected = "this cache was opened before this process was forked: open one here, connections cannot be shared"
    for run in (loop.run_until_complete, asyncio.run):
        assert in_child(lambda run=run: run(call(cache, session))) == ["ConfigurationError", expected]  # type: ignore[misc]
    assert loop.run_until_complete(session.get("a")) == 1
    loop.run_until_complete(cache.aclose())


def test_a_cache_over_clients_may_be_made_before_its_loop_runs(
    small_urls: Urls, loop: asyncio.AbstractEventLoop, callers: AsyncExitStack
) -> None:
    cache = asyncio.run(unused_over_clients(small_urls, callers))
    assert loop.run_until_complete(cache.list()).items == []
    loop.run_until_complete(cache.aclose())
