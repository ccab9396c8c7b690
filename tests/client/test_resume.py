"""Resuming by id alone: scheduled runs know the conversation, not whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache import (
    AmbiguousSessionError,
    DurableTierUnavailableError,
    Identity,
    InvalidNameError,
    NoSessionError,
    Session,
    SessionCache,
    SessionNotFoundError,
    current_session,
)
from tests.helpers import Urls, connect, drain, evict, execute, raw


async def resumed(cache: SessionCache, session_id: str, user: str | None = None) -> dict[str, object]:
    """The state of a session as a run that resumes it sees it."""
    async with cache.resume(session_id, user=user) as session:
        return dict(session.state)


async def test_a_session_is_resumed_by_its_id_unflushed_flushed_and_cold(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"x": 1, "user:y": 2, "app:z": 3})
    expected = {"x": 1, "user:y": 2, "app:z": 3}
    async with connect(urls) as other:
        assert await resumed(other, "s1") == expected
        await drain(urls)
        assert await resumed(other, "s1") == expected
        evict(urls.redis)
        assert await resumed(other, "s1") == expected
        with raw(urls.redis) as client:
            client.flushall()
        assert await resumed(other, "s1") == expected


async def test_a_generated_id_is_resumed_as_well(cache: SessionCache) -> None:
    session = await cache.create("ada", state={"x": 1})
    assert await resumed(cache, session.id) == {"x": 1}


async def test_the_session_is_ambient_within_the_block_only(small_cache: SessionCache) -> None:
    await small_cache.create("ada", session_id="s1")
    outer = await small_cache.create("ada", session_id="outer")
    with outer.bind() as bound:
        assert bound is outer
        async with small_cache.resume("s1") as session:
            assert current_session() is session
            assert session.identity == Identity(org="", app="app", user="ada", session_id="s1")
            assert await asyncio.create_task(_ambient_id()) == "s1"
        assert current_session() is outer
        with pytest.raises(RuntimeError, match="inside"):
            async with small_cache.resume("s1"):
                raise RuntimeError("inside")
        assert current_session() is outer
    with pytest.raises(NoSessionError):
        current_session()


async def _ambient_id() -> str:
    return current_session().id


async def test_runs_at_once_each_see_the_session_they_resumed(small_cache: SessionCache) -> None:
    for number in range(10):
        await small_cache.create("ada", session_id=f"s{number}")
    everybody = asyncio.Barrier(10)

    async def run(name: str) -> bool:
        async with small_cache.resume(name) as session:
            await everybody.wait()
            await current_session().set("mine", name)
            return current_session() is session and await session.get("mine") == name

    assert all(await asyncio.gather(*(run(f"s{number}") for number in range(10))))


async def test_an_id_of_several_users_is_refused_without_naming_them(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"x": "of ada"})
    await drain(urls)
    evict(urls.redis)
    await cache.create("bob", session_id="s1", state={"x": "of bob"})
    for _ in range(2):
        with pytest.raises(AmbiguousSessionError) as caught:
            await resumed(cache, "s1")
        assert caught.value.session_id == "s1"
        assert "ada" not in str(caught.value)
        assert "bob" not in str(caught.value)
        assert await resumed(cache, "s1", "bob") == {"x": "of bob"}
        assert await resumed(cache, "s1", "ada") == {"x": "of ada"}
        await drain(urls)
    await cache.delete("ada", "s1")
    assert await resumed(cache, "s1") == {"x": "of bob"}


async def test_a_session_of_another_app_or_org_is_none(cache: SessionCache, urls: Urls) -> None:
    app, org = cache.bound_to(app="other"), cache.bound_to(org="other")
    await app.create("ada", session_id="s1", state={"x": "of the app"})
    await org.create("bob", session_id="s1", state={"x": "of the org"})
    for _ in range(2):
        with pytest.raises(SessionNotFoundError):
            await resumed(cache, "s1")
        assert await resumed(app, "s1") == {"x": "of the app"}
        assert await resumed(org, "s1") == {"x": "of the org"}
        await drain(urls)
        evict(urls.redis)
    await cache.create("eve", session_id="s1", state={"x": "ours"})
    assert await resumed(cache, "s1") == {"x": "ours"}
    assert await resumed(app, "s1") == {"x": "of the app"}


async def test_a_deleted_session_is_not_resumed_and_a_new_life_is(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"x": 1})
    await drain(urls)
    await cache.delete("ada", "s1")
    for _ in range(2):
        with pytest.raises(SessionNotFoundError):
            await resumed(cache, "s1")
        await drain(urls)
    await cache.create("bob", session_id="s1", state={"x": 2})
    assert await resumed(cache, "s1") == {"x": 2}


async def test_what_does_not_exist_is_not_found_and_nothing_is_created(small_cache: SessionCache) -> None:
    for user in (None, "ada"):
        with pytest.raises(SessionNotFoundError) as caught:
            await resumed(small_cache, "nothing", user)
        assert caught.value.session_id == "nothing"
    assert (await small_cache.list()).items == []


@pytest.mark.parametrize("session_id", ["", "a\0b", "\ud800", "x" * 257, 7, None])
async def test_a_wrong_id_is_refused(small_cache: SessionCache, session_id: object) -> None:
    with pytest.raises(InvalidNameError):
        await resumed(small_cache, session_id)  # type: ignore[arg-type]


def between_the_readings(cache: SessionCache, happen: Callable[[], Awaitable[object]]) -> None:
    """Let something happen after one tier was searched and before the other is, whichever comes first."""
    searched: list[str] = []

    def watch(tier: object, name: str) -> None:
        inner = getattr(tier, name)

        async def search(*args: Any, **kwargs: Any) -> Any:
            found = await inner(*args, **kwargs)
            searched.append(name)
            if len(searched) == 1:
                await happen()
            return found

        setattr(tier, name, search)

    watch(cache._tiers.hot, "unflushed")
    watch(cache._tiers.durable, "find_sessions")


async def test_a_session_that_is_flushed_while_it_is_looked_for_is_found(small_urls: Urls) -> None:
    async def flush_and_evict() -> None:
        await drain(small_urls)
        evict(small_urls.redis)

    async with connect(small_urls) as cache:
        await cache.create("ada", session_id="s1", state={"x": 1})
        between_the_readings(cache, flush_and_evict)
        assert await resumed(cache, "s1") == {"x": 1}


async def test_a_session_that_is_deleted_while_it_is_looked_for_is_not_found(small_urls: Urls) -> None:
    async with connect(small_urls) as cache:
        await cache.create("ada", session_id="s1")
        between_the_readings(cache, lambda: cache.delete("ada", "s1"))
        with pytest.raises(SessionNotFoundError):
            await resumed(cache, "s1")


async def test_with_a_user_a_hot_session_is_resumed_while_the_database_is_away(small_urls: Urls) -> None:
    async with connect(small_urls, timeout=1) as cache:
        await cache.create("ada", session_id="s1", state={"x": 1})
        await cache.get("ada", "s1")
        execute(small_urls.database, "ALTER TABLE sessioncache_session RENAME TO hidden")
        try:
            assert await resumed(cache, "s1", "ada") == {"x": 1}
            with pytest.raises(DurableTierUnavailableError):
                await resumed(cache, "s1")
        finally:
            execute(small_urls.database, "ALTER TABLE hidden RENAME TO sessioncache_session")


async def test_a_session_bound_by_hand_is_the_handle_itself(small_cache: SessionCache) -> None:
    session: Session = await small_cache.create("ada", session_id="s1")
    with session.bind():
        await current_session().set("x", 1)
    assert session.state["x"] == 1
