"""Pages of lists, both orders, all apps of an org, and finding a session by its id alone."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache.errors import InvalidNameError
from sessioncache.testing.conformance.base import Cache, Conformance, facts, raised
from sessioncache.testing.conformance.listing import ORDERS, ids, make, pages


class TestPages(Conformance):
    """cursor, order, iter_sessions."""

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
    async def test_pages_show_every_session_once(self, cache: Cache, order: str, limit: int) -> None:
        made = await make(cache, 7)
        found = await pages(cache, "ada", limit=limit, order=order)
        assert [one for page in found for one in ids(page)] == made[::-1]
        assert [len(page.items) for page in found[:-1]] == [limit] * (len(found) - 1)
        assert found[-1].cursor is None

    async def test_all_at_once_has_no_cursor(self, cache: Cache) -> None:
        made = await make(cache, 60)
        page = await cache.list("ada", limit=None)
        assert (ids(page), page.cursor) == (made[::-1], None)
        first = await cache.list("ada")
        assert (ids(first), first.cursor is None) == (made[:9:-1], False)

    async def test_the_order_created_is_not_moved_by_writes(self, cache: Cache) -> None:
        await make(cache, 3)
        await (await cache.get("ada", "ada-0")).set("a", 1)
        assert ids(await cache.list("ada", order="created")) == ["ada-2", "ada-1", "ada-0"]
        assert ids(await cache.list("ada", order="updated")) == ["ada-0", "ada-2", "ada-1"]

    async def test_created_order_shows_each_living_session_once_whatever_happens(self, cache: Cache) -> None:
        made = await make(cache, 12)
        await cache.flush()
        seen: list[str] = []
        cursor = None
        for step in range(6):
            page = await cache.list("ada", limit=2, order="created", cursor=cursor)
            seen += ids(page)
            cursor = page.cursor
            await (await cache.get("ada", made[step])).set("a", step)
            await (await cache.get("ada", made[11 - step])).set("a", step)
            await cache.create("ada", session_id=f"new-{step}")
        assert seen == made[::-1]

    async def test_a_session_that_goes_meanwhile_is_not_shown_after(self, cache: Cache) -> None:
        made = await make(cache, 6)
        page = await cache.list("ada", limit=2, order="created")
        await cache.delete("ada", made[0])
        await cache.delete("ada", made[5])
        rest = await cache.list("ada", limit=50, order="created", cursor=page.cursor)
        assert ids(page) + ids(rest) == made[:0:-1]

    @pytest.mark.parametrize("order", ORDERS)
    async def test_iter_sessions_goes_through_all(self, cache: Cache, order: str) -> None:
        made = await make(cache, 60)
        await make(cache, 1, "bob")
        found = [one async for one in cache.iter_sessions("ada", order=order)]
        assert [one.id for one in found] == made[::-1]
        everyone = [one.id async for one in cache.iter_sessions(order=order)]
        assert everyone == ["bob-0", *made[::-1]]

    async def test_pages_of_the_whole_app(self, cache: Cache) -> None:
        made = [(await cache.create(f"u{number % 3}", session_id=f"s{number}")).id for number in range(9)]
        found = await pages(cache, limit=4)
        assert [one for page in found for one in ids(page)] == made[::-1]

    async def test_a_cursor_serves_its_own_list_only(self, cache: Cache) -> None:
        await make(cache, 3)
        cursor = (await cache.list("ada", limit=1)).cursor
        await raised(InvalidNameError, cache.list("bob", limit=1, cursor=cursor))
        await raised(InvalidNameError, cache.list(limit=1, cursor=cursor))
        await raised(InvalidNameError, cache.list("ada", limit=1, cursor=cursor, order="created"))
        await raised(InvalidNameError, cache.bound_to(app="other").list("ada", limit=1, cursor=cursor))

    @pytest.mark.parametrize("cursor", ["", "x", "é", "AAAA", 1, b"x"], ids=repr)
    async def test_a_cursor_that_is_none_is_refused(self, cache: Cache, cursor: Any) -> None:
        await raised(InvalidNameError, cache.list("ada", cursor=cursor))

    @pytest.mark.parametrize("order", ["", "Updated", "title", None, 1], ids=repr)
    async def test_an_unknown_order_is_refused(self, cache: Cache, order: Any) -> None:
        await raised(InvalidNameError, cache.list("ada", order=order))


class TestAllApps(Conformance):
    """Across the apps of one org."""

    async def test_all_apps_of_the_org_are_listed(self, cache: Cache) -> None:
        other, foreign = cache.bound_to(app="other"), cache.bound_to(org=cache.org + "2")
        await cache.create("ada", session_id="s1")
        await other.create("ada", session_id="s2")
        await other.create("bob", session_id="s3")
        await foreign.create("ada", session_id="s4")
        page = await cache.list(all_apps=True)
        assert [(one.app, one.user, one.id) for one in page.items] == [
            ("other", "bob", "s3"),
            ("other", "ada", "s2"),
            (cache.app, "ada", "s1"),
        ]
        assert ids(await cache.list("ada", all_apps=True)) == ["s2", "s1"]
        assert [one.id async for one in cache.iter_sessions("ada", all_apps=True, order="created")] == ["s2", "s1"]
        assert ids(await cache.list()) == ["s1"]

    async def test_pages_across_apps_show_every_session_once(self, cache: Cache) -> None:
        apps = [cache.bound_to(app=f"app {number}") for number in range(3)]
        for number in range(9):
            await apps[number % 3].create("ada", session_id="same id" if number < 3 else f"s{number}")
        found = await pages(cache, all_apps=True, limit=2)
        shown = [(one.app, one.id) for page in found for one in page.items]
        assert len(shown) == len(set(shown)) == 9
        assert [app for app, _ in shown] == ["app 2", "app 1", "app 0"] * 3


class TestFind(Conformance):
    """cache.find."""

    async def test_a_session_is_found_by_its_id_whatever_the_user(self, cache: Cache) -> None:
        made = await cache.create("bob", session_id="s1", title="Bob's")
        await cache.create("ada", session_id="s1")
        await cache.create("ada", session_id="s2")
        found = await cache.find("s1")
        assert [(one.app, one.user, one.id) for one in found] == [(cache.app, "ada", "s1"), (cache.app, "bob", "s1")]
        assert facts(found[1]) == facts(made)
        assert await cache.find("s3") == []

    async def test_other_apps_are_searched_on_request(self, cache: Cache) -> None:
        await cache.bound_to(app="zoo").create("ada", session_id="s1")
        await cache.bound_to(app="zoo").create("", session_id="s1")
        await cache.create("bob", session_id="s1")
        await cache.bound_to(org=cache.org + "2").create("ada", session_id="s1")
        assert [one.user for one in await cache.find("s1")] == ["bob"]
        assert [(one.app, one.user) for one in await cache.find("s1", all_apps=True)] == [
            (cache.app, "bob"),
            ("zoo", ""),
            ("zoo", "ada"),
        ]

    async def test_flushed_sessions_are_found_and_deleted_ones_are_not(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")
        await cache.create("bob", session_id="s1")
        await cache.flush()
        assert len(await cache.find("s1")) == 2
        await cache.delete("ada", "s1")
        assert [one.user for one in await cache.find("s1")] == ["bob"]
        await cache.flush()
        assert [one.user for one in await cache.find("s1")] == ["bob"]

    async def test_sessions_of_an_erased_user_are_not_found(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")
        await cache.flush()
        await cache.create("ada", session_id="s2")
        await cache.erase_user("ada")
        assert await cache.find("s1") == await cache.find("s2") == []
        assert (await cache.list(all_apps=True)).items == []
