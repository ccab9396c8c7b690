"""Lists page by page: nothing is missed or repeated, whatever is unflushed, cold, or happens between two readings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessioncache import InvalidNameError, SessionCache, SessionInfo, SessionNotFoundError
from sessioncache.primitives.cursors import ORDERS, Order
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, drain, evict, execute, upgrade

Whose = dict[str, Any]
WHOSE: dict[str, Whose] = {
    "user": {"user": "ada"},
    "app": {},
    "user in all apps": {"user": "ada", "all_apps": True},
    "org": {"all_apps": True},
}


def identity(info: SessionInfo) -> tuple[str, str, str]:
    """What a session of the tests' org is known by."""
    return info.app, info.user, info.id


async def all_pages(cache: SessionCache, limit: int, **whose: Any) -> list[SessionInfo]:
    """All sessions of a list, gathered page by page; every page but the last is full."""
    found: list[SessionInfo] = []
    cursor = None
    while True:
        page = await cache.list(limit=limit, cursor=cursor, **whose)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            assert 0 < len(page.items) <= limit or not found
            return found
        assert len(page.items) == limit


async def fill(cache: SessionCache, urls: Urls) -> set[tuple[str, str, str]]:
    """Sessions of two apps and two users: some cold, some flushed and then written, some new; some are deleted."""
    caches = {"app": cache, "other": cache.bound_to(app="other")}
    everyone = [(app, user) for app in caches for user in ("ada", "bob")]
    for number in range(6):
        for app, user in everyone:
            await caches[app].create(user, session_id=f"cold{number}")
    await drain(urls)
    evict(urls.redis)
    for app, user in everyone:
        await (await caches[app].get(user, "cold1")).set("k", 1)
        await (await caches[app].get(user, "cold4")).set("k", 1)
        await caches[app].delete(user, "cold2")
        for number in range(3):
            await caches[app].create(user, session_id=f"new{number}")
        await caches[app].delete(user, "new1")
    left = ("cold0", "cold1", "cold3", "cold4", "cold5", "new0", "new2")
    return {(app, user, name) for app, user in everyone for name in left}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("whose", WHOSE)
async def test_pages_of_any_size_together_are_the_whole_list(
    cache: SessionCache, urls: Urls, whose: str, order: Order
) -> None:
    everything = await fill(cache, urls)
    options = {**WHOSE[whose], "order": order}
    user, app = options.get("user"), None if options.get("all_apps") else "app"
    expected = {one for one in everything if app in (None, one[0]) and user in (None, one[1])}
    for _ in range(2):
        whole = (await cache.list(limit=None, **options)).items
        assert {identity(info) for info in whole} == expected
        assert len(whole) == len(expected)
        instants = [(info.updated_at if order == "updated" else info.created_at) for info in whole]
        assert instants == sorted(instants, reverse=True)
        for limit in (1, 3, 7, 100):
            assert await all_pages(cache, limit, **options) == whole
        assert [info async for info in cache.iter_sessions(**options)] == whole
        await drain(urls)
        evict(urls.redis)


async def test_a_page_that_ends_with_the_list_has_no_cursor(cache: SessionCache, urls: Urls) -> None:
    for number in range(4):
        await cache.create("ada", session_id=f"s{number}")
    for _ in range(2):
        assert (await cache.list("ada", limit=4)).cursor is None
        first = await cache.list("ada", limit=2)
        assert first.cursor is not None
        assert (await cache.list("ada", limit=2, cursor=first.cursor)).cursor is None
        assert (await cache.list("nobody", limit=2)).cursor is None
        await drain(urls)
        evict(urls.redis)


@pytest.mark.parametrize("order", ORDERS)
async def test_sessions_of_one_id_and_one_instant_come_once_each(cache: SessionCache, urls: Urls, order: Order) -> None:
    for number in range(12):
        await cache.create(f"user{number}", session_id="same")
    await drain(urls)
    evict(urls.redis)
    execute(urls.database, "UPDATE sessioncache_session SET birth = 1790000000000000, updated = 1790000000000000")
    pages = await all_pages(cache, 5, order=order)
    assert sorted(info.user for info in pages) == sorted(f"user{number}" for number in range(12))
    await (await cache.get("user5", "same")).set("k", 1)
    pages = await all_pages(cache, 5, order=order)
    assert sorted(info.user for info in pages) == sorted(f"user{number}" for number in range(12))


async def test_every_session_that_lives_all_the_while_comes_once_while_others_come_and_go(
    cache: SessionCache, urls: Urls
) -> None:
    living = [f"s{number:03}" for number in range(150)]
    for name in living:
        await cache.create("ada", session_id=name)
    await drain(urls)
    evict(urls.redis)
    seen: list[str] = []
    deleted: list[str] = []
    cursor = None
    for step in range(100):
        page = await cache.list("ada", limit=4, cursor=cursor, order="created")
        seen += [info.id for info in page.items]
        assert not {info.id for info in page.items} & set(deleted)
        cursor = page.cursor
        if cursor is None:
            break
        await disturb(cache, urls, step, deleted)
    left = set(living) - set(deleted)
    assert len(seen) == len(set(seen))
    assert left <= set(seen)
    assert len(deleted) >= 25


async def disturb(cache: SessionCache, urls: Urls, step: int, deleted: list[str]) -> None:
    """Touch some sessions, create one, delete one, re-create an older one; flush and evict now and then."""
    for number in range(step, 150, 37):
        if f"s{number:03}" not in deleted:
            await (await cache.get("ada", f"s{number:03}")).set("k", step)
    await cache.create("ada", session_id=f"new{step:03}")
    victim = f"s{(step * 61) % 150:03}"
    if victim not in deleted:
        await cache.delete("ada", victim)
        deleted.append(victim)
    if step % 3 == 1:
        await drain(urls)
    if step % 5 == 2:
        evict(urls.redis)


async def test_a_new_life_under_an_id_that_was_listed_comes_no_second_time(cache: SessionCache, urls: Urls) -> None:
    for number in range(6):
        await cache.create("ada", session_id=f"s{number}")
    await drain(urls)
    first = await cache.list("ada", limit=3, order="created")
    assert [info.id for info in first.items] == ["s5", "s4", "s3"]
    for name in ("s4", "s1"):
        await cache.delete("ada", name)
        await cache.create("ada", session_id=name)
    for _ in range(2):
        rest = await cache.list("ada", limit=3, cursor=first.cursor, order="created")
        assert [info.id for info in rest.items] == ["s2", "s0"]
        await drain(urls)


async def test_many_rows_that_unflushed_sessions_have_superseded_do_not_hide_those_below(
    small_cache: SessionCache, small_urls: Urls
) -> None:
    for number in range(300):
        await small_cache.create("ada", session_id=f"s{number:03}")
    await drain(small_urls)
    for number in range(20, 300):
        await small_cache.delete("ada", f"s{number:03}")
    for number in range(10):
        await (await small_cache.get("ada", f"s{number:03}")).set("k", 1)
    queries = count_queries(small_cache)
    for order, first in (("created", 19), ("updated", 9)):
        page = await small_cache.list("ada", limit=5, order=order)  # type: ignore[arg-type]
        assert [info.id for info in page.items] == [f"s{number:03}" for number in range(first, first - 5, -1)]
    assert len(queries) <= 8


def count_queries(cache: SessionCache) -> list[int]:
    """The limits of the queries that lists send from now on."""
    limits: list[int] = []
    durable = cache._tiers.durable
    inner = durable.list_sessions

    async def counted(owner: Any, order: Any, after: Any, limit: Any) -> Any:
        limits.append(limit)
        return await inner(owner, order, after, limit)

    vars(durable)["list_sessions"] = counted
    return limits


# ---- what happens between the reading of Redis and that of SQL


def meanwhile(cache: SessionCache, what: Callable[[], Awaitable[object]]) -> None:
    """Do something once when a list has read Redis and not yet SQL."""
    durable = cache._tiers.durable
    inner = durable.list_sessions

    async def interrupted(*args: Any) -> Any:
        del vars(durable)["list_sessions"]
        await what()
        return await inner(*args)

    vars(durable)["list_sessions"] = interrupted


@pytest.mark.parametrize("order", ORDERS)
async def test_what_is_flushed_between_the_two_readings_comes_once(
    cache: SessionCache, urls: Urls, order: Order
) -> None:
    for number in range(5):
        await cache.create("ada", session_id=f"s{number}")
    meanwhile(cache, lambda: drain(urls))
    page = await cache.list("ada", limit=3, order=order)
    assert [info.id for info in page.items] == ["s4", "s3", "s2"]
    rest = await cache.list("ada", limit=3, cursor=page.cursor, order=order)
    assert [info.id for info in rest.items] == ["s1", "s0"]


@pytest.mark.parametrize("order", ORDERS)
async def test_a_delete_that_is_flushed_between_the_two_readings_stays_one(
    cache: SessionCache, urls: Urls, order: Order
) -> None:
    for number in range(3):
        await cache.create("ada", session_id=f"s{number}")
    await drain(urls)
    await cache.delete("ada", "s1")
    meanwhile(cache, lambda: drain(urls))
    assert [info.id for info in (await cache.list("ada", order=order)).items] == ["s2", "s0"]


async def test_a_session_re_created_and_flushed_between_the_two_readings_comes_once(
    cache: SessionCache, urls: Urls
) -> None:
    for number in range(3):
        await cache.create("ada", session_id=f"s{number}")

    async def live_again() -> None:
        await cache.delete("ada", "s1")
        await cache.create("ada", session_id="s1", title="again")
        await drain(urls)

    for order in ORDERS:
        meanwhile(cache, live_again)
        page = await cache.list("ada", order=order)
        assert [(info.id, info.title) for info in page.items] == [("s1", "again"), ("s2", ""), ("s0", "")]


async def test_a_session_written_and_flushed_between_the_two_readings_comes_once(
    cache: SessionCache, urls: Urls
) -> None:
    handles = [await cache.create("ada", session_id=f"s{number}") for number in range(4)]

    async def write() -> None:
        await handles[0].set("k", 1)
        await drain(urls)

    meanwhile(cache, write)
    assert [info.id for info in (await cache.list("ada", limit=None)).items] == ["s0", "s3", "s2", "s1"]


async def test_r17_a_session_deleted_elsewhere_is_not_listed_by_a_redis_that_has_it_unflushed(
    database_url: str, start_redis: StartRedis
) -> None:
    await upgrade(database_url)
    first, second = (Urls(start_redis().url, database_url) for _ in range(2))
    async with connect(first) as one, connect(second) as two:
        for name in ("kept", "deleted"):
            await one.create("ada", session_id=name)
        await drain(first)
        for name in ("kept", "deleted"):
            await (await one.get("ada", name)).set("k", 1)
        await two.delete("ada", "deleted")
        await drain(second)
        with pytest.raises(SessionNotFoundError):
            await one.get("ada", "none")  # reads SQL, and learns that its Redis has been replaced
        for order in ORDERS:
            assert [info.id for info in (await one.list("ada", order=order)).items] == ["kept"]
        assert [info.id for info in await one.find("deleted")] == []
        assert len(await one.find("kept")) == 1


# ---- find


async def test_find_tells_every_living_session_of_an_id(cache: SessionCache, urls: Urls) -> None:
    other, elsewhere = cache.bound_to(app="other"), cache.bound_to(org="else")
    for user in ("bob", "ada", "gone", ""):
        await cache.create(user, session_id="s")
    await cache.create("ada", session_id="t")
    await elsewhere.create("ada", session_id="s")
    await drain(urls)
    evict(urls.redis)
    await other.create("ada", session_id="s")
    await cache.create("eve", session_id="s")
    await cache.delete("gone", "s")
    here = [("app", user, "s") for user in ("", "ada", "bob", "eve")]
    for _ in range(2):
        assert [identity(info) for info in await cache.find("s")] == here
        assert [identity(info) for info in await cache.find("s", all_apps=True)] == [*here, ("other", "ada", "s")]
        assert [info.org for info in await elsewhere.find("s")] == ["else"]
        assert await cache.find("none") == []
        await drain(urls)
        evict(urls.redis)


@pytest.mark.parametrize("wrong", ["", "a\0b", "x" * 257, None, 7])
async def test_find_refuses_what_is_no_session_id(small_cache: SessionCache, wrong: Any) -> None:
    with pytest.raises(InvalidNameError, match="a session id"):
        await small_cache.find(wrong)


# ---- cursors


async def test_a_cursor_is_refused_by_every_other_list(small_cache: SessionCache) -> None:
    for number in range(3):
        await small_cache.create("ada", session_id=f"s{number}")
    lists = [{**whose, "order": order} for whose in WHOSE.values() for order in ORDERS]
    for one in lists:
        cursor = (await small_cache.list(limit=1, **one)).cursor
        for other in lists:
            if other == one:
                assert len((await small_cache.list(cursor=cursor, **other)).items) == 2
                continue
            with pytest.raises(InvalidNameError, match="cursor is of another list"):
                await small_cache.list(cursor=cursor, **other)
        for cache in (small_cache.bound_to(app="other"), small_cache.bound_to(org="other")):
            if one.get("all_apps") and cache.org == small_cache.org:
                continue
            with pytest.raises(InvalidNameError, match="cursor is of another list"):
                await cache.list(cursor=cursor, **one)


@pytest.mark.parametrize("wrong", ["", "x", "nonsense", "ä", "=", "a" * 60, 7, b"bytes", True])
async def test_a_cursor_that_no_list_returned_is_refused(small_cache: SessionCache, wrong: Any) -> None:
    with pytest.raises(InvalidNameError, match="cursor"):
        await small_cache.list(cursor=wrong)


async def test_a_cursor_is_safe_in_urls_whatever_the_session_is_called(small_cache: SessionCache) -> None:
    for name in ("ü/😀?&=", "s" * 256, "a b"):
        await small_cache.create("ada", session_id=name)
    for name in ("a b", "s" * 256):
        page = await small_cache.list("ada", limit=["a b", "s" * 256].index(name) + 1)
        assert page.items[-1].id == name
        assert page.cursor is not None
        assert page.cursor.replace("-", "").replace("_", "").isalnum()
        assert page.cursor.isascii()
    assert [info.id for info in (await small_cache.list("ada", cursor=page.cursor)).items] == ["ü/😀?&="]


@pytest.mark.parametrize("wrong", ["", "newest", None, 1])
async def test_a_wrong_order_is_refused(small_cache: SessionCache, wrong: Any) -> None:
    with pytest.raises(InvalidNameError, match="order must be"):
        await small_cache.list(order=wrong)
    with pytest.raises(InvalidNameError, match="order must be"):
        small_cache.iter_sessions(order=wrong)


async def test_a_page_of_none_stays_where_it_is(small_cache: SessionCache) -> None:
    for number in range(2):
        await small_cache.create("ada", session_id=f"s{number}")
    first = await small_cache.list("ada", limit=1)
    nothing = await small_cache.list("ada", limit=0, cursor=first.cursor)
    assert (nothing.items, nothing.cursor) == ([], first.cursor)
