"""Lists: every living session once, newest first, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache.errors import InvalidNameError
from sessioncache.testing.conformance.base import Cache, Conformance, facts, raised

ORDERS = ["updated", "created"]


def ids(page: Any) -> list[str]:
    """The session ids of a page."""
    return [one.id for one in page.items]


async def make(cache: Cache, count: int, user: str = "ada") -> list[str]:
    """Create sessions; their ids, oldest first."""
    return [(await cache.create(user, session_id=f"{user}-{number}")).id for number in range(count)]


async def pages(cache: Cache, *arguments: Any, **named: Any) -> list[Any]:
    """All pages of a list."""
    found = [await cache.list(*arguments, **named)]
    while found[-1].cursor is not None:
        found.append(await cache.list(*arguments, **named, cursor=found[-1].cursor))
    return found


class TestLists(Conformance):
    """What a list shows."""

    async def test_a_list_shows_what_the_session_says_of_itself(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1", title="A trip")
        await made.set("a", 1)
        (listed,) = (await cache.list("ada")).items
        assert facts(listed) == facts(await cache.get("ada", "s1")) == facts(made)

    async def test_a_list_is_of_one_user_or_of_the_whole_app(self, cache: Cache) -> None:
        await make(cache, 2, "ada")
        await make(cache, 1, "bob")
        await make(cache, 1, "")
        await cache.bound_to(app="other").create("ada", session_id="elsewhere")
        assert ids(await cache.list("ada")) == ["ada-1", "ada-0"]
        assert ids(await cache.list("")) == ["-0"]
        assert ids(await cache.list()) == ["-0", "bob-0", "ada-1", "ada-0"]
        assert ids(await cache.list("nobody")) == []

    async def test_the_last_updated_comes_first(self, cache: Cache) -> None:
        await make(cache, 3)
        await (await cache.get("ada", "ada-0")).set("a", 1)
        assert ids(await cache.list("ada")) == ["ada-0", "ada-2", "ada-1"]
        await (await cache.get("ada", "ada-1")).update({"user:u": 1, "app:p": 1, "temp:t": 1})
        assert ids(await cache.list("ada")) == ["ada-0", "ada-2", "ada-1"]

    async def test_deleted_sessions_are_never_listed(self, cache: Cache) -> None:
        await make(cache, 3)
        await cache.flush()
        await cache.delete("ada", "ada-1")
        assert ids(await cache.list("ada")) == ["ada-2", "ada-0"]
        await cache.flush()
        assert ids(await cache.list("ada")) == ["ada-2", "ada-0"]
        assert ids(await cache.list()) == ["ada-2", "ada-0"]

    async def test_flushed_and_unflushed_sessions_are_listed_alike(self, cache: Cache) -> None:
        await make(cache, 3)
        await cache.flush()
        await (await cache.get("ada", "ada-1")).set("a", 1)
        await cache.create("ada", session_id="new")
        assert ids(await cache.list("ada")) == ["new", "ada-1", "ada-2", "ada-0"]

    async def test_a_limit_cuts_the_list(self, cache: Cache) -> None:
        await make(cache, 3)
        assert ids(await cache.list("ada", limit=2)) == ["ada-2", "ada-1"]
        assert ids(await cache.list("ada", limit=3)) == ids(await cache.list("ada", limit=None))

    @pytest.mark.parametrize("limit", [-1, 1.0, "1", True], ids=repr)
    async def test_a_wrong_limit_is_refused(self, cache: Cache, limit: Any) -> None:
        await raised(InvalidNameError, cache.list("ada", limit=limit))
