"""Lists: hot and cold sessions together, last updated first."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache, SessionCacheError
from tests.helpers import Urls, connect, drain, evict


async def ids(cache: SessionCache, user: str | None = None, limit: int | None = None) -> list[str]:
    """The ids that a list shows."""
    return [one.id for one in (await cache.list(user, limit=limit)).items]


async def test_a_list_shows_unflushed_and_flushed_sessions_last_updated_first(cache: SessionCache, urls: Urls) -> None:
    for name in ("a", "b", "c"):
        await cache.create("ada", session_id=name)
    await drain(urls)
    evict(urls.redis)
    await cache.create("ada", session_id="d")
    await (await cache.get("ada", "a")).set("x", 1)
    assert await ids(cache, "ada") == ["a", "d", "c", "b"]
    assert await ids(cache, "ada", limit=2) == ["a", "d"]
    assert await ids(cache, "ada", limit=0) == []
    await drain(urls)
    evict(urls.redis)
    assert await ids(cache, "ada") == ["a", "d", "c", "b"]


async def test_a_list_of_a_user_shows_nobody_elses(cache: SessionCache, urls: Urls) -> None:
    for number in range(3):
        await cache.create("ada", session_id=f"a{number}")
        await cache.create("bob", session_id=f"b{number}")
        await cache.bound_to(app="other").create("ada", session_id=f"o{number}")
    for _ in range(2):
        assert sorted(await ids(cache, "ada")) == ["a0", "a1", "a2"]
        assert sorted(await ids(cache, "bob")) == ["b0", "b1", "b2"]
        assert sorted(await ids(cache)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert await ids(cache, "nobody") == []
        await drain(urls)
        evict(urls.redis)


async def test_a_deleted_session_leaves_lists_at_once(cache: SessionCache, urls: Urls) -> None:
    for name in ("a", "b", "c"):
        await cache.create("ada", session_id=name)
    await drain(urls)
    await cache.delete("ada", "b")
    for _ in range(2):
        async with connect(urls) as other:
            assert await ids(other, "ada") == ["c", "a"]
            assert await ids(other) == ["c", "a"]
        evict(urls.redis)
        await drain(urls)
    await cache.create("ada", session_id="b")
    assert await ids(cache, "ada") == ["b", "c", "a"]


async def test_shared_state_does_not_move_a_session_in_lists(cache: SessionCache) -> None:
    first = await cache.create("ada", session_id="a")
    await cache.create("ada", session_id="b")
    await first.update({"user:x": 1, "app:x": 1, "temp:x": 1})
    assert await ids(cache, "ada") == ["b", "a"]


async def test_a_list_of_more_unflushed_sessions_than_one_reply_holds(cache: SessionCache, urls: Urls) -> None:
    for number in range(1_100):
        await cache.create("ada", session_id=f"s{number:04}")
    expected = [f"s{number:04}" for number in reversed(range(1_100))]
    assert await ids(cache, "ada") == expected
    assert await ids(cache, "ada", limit=3) == expected[:3]
    await drain(urls)
    evict(urls.redis)
    assert await ids(cache, "ada") == expected
    assert len((await cache.list("ada")).items) == 50


@pytest.mark.parametrize("limit", [-1, True, 1.5, "1"])
async def test_a_wrong_limit_is_refused(small_cache: SessionCache, limit: object) -> None:
    with pytest.raises(SessionCacheError):
        await small_cache.list(limit=limit)  # type: ignore[arg-type]
