"""What can be told of a session beside its state: counters, times, title; and clearing it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessioncache.errors import (
    InvalidNameError,
    InvalidValueError,
    LimitExceededError,
    SessionNotFoundError,
    StaleSessionError,
)
from sessioncache.testing.conformance.base import Cache, Conformance, facts, raised


class TestTouches(Conformance):
    """cache.touch and s.touch."""

    async def test_a_touch_adds_to_the_counters(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1")
        info = await cache.touch("ada", "s1", messages=2, tokens=30)
        assert (info.id, info.message_count, info.token_total) == ("s1", 2, 30)
        info = await made.touch(messages=1)
        assert (info.message_count, info.token_total) == (3, 30)
        assert (made.message_count, made.token_total) == (3, 30)
        found = await cache.get("ada", "s1")
        assert (found.message_count, found.token_total) == (3, 30)

    async def test_a_touch_moves_updated_at_and_nothing_else(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "user:u": 1, "temp:t": 1})
        before = (made.revision, made.created_at, made.updated_at)
        info = await made.touch()
        assert info.updated_at > before[2]
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {"a": 1, "user:u": 1, "temp:t": 1}
        assert (found.revision, found.created_at) == before[:2]
        assert found.updated_at == made.updated_at == info.updated_at

    async def test_every_touch_counts(self, cache: Cache) -> None:
        made = await cache.create("ada")
        await asyncio.gather(*(cache.touch("ada", made.id, messages=1, tokens=10) for _ in range(50)))
        found = await cache.get("ada", made.id)
        assert (found.message_count, found.token_total) == (50, 500)

    async def test_counters_survive_a_flush(self, cache: Cache) -> None:
        made = await cache.create("ada")
        info = await made.touch(messages=2, tokens=3, first_message="Hello there")
        await made.flush()
        (listed,) = (await cache.list("ada")).items
        assert facts(listed) == facts(info) == facts(await cache.get("ada", made.id))

    @pytest.mark.parametrize("name", ["messages", "tokens"])
    @pytest.mark.parametrize("number", [-1, 1.0, True, "1", None], ids=repr)
    async def test_a_wrong_count_is_refused(self, cache: Cache, name: str, number: Any) -> None:
        made = await cache.create("ada")
        error = await raised(InvalidValueError, made.touch(**{"messages": 1, "tokens": 1} | {name: number}))
        assert error.path == name
        await raised(InvalidValueError, cache.touch("ada", made.id, **{name: number}))
        found = await cache.get("ada", made.id)
        assert (found.message_count, found.token_total, found.updated_at) == (0, 0, made.updated_at)

    async def test_a_missing_or_older_session_is_not_touched(self, cache: Cache) -> None:
        await raised(SessionNotFoundError, cache.touch("ada", "none", messages=1))
        old = await cache.create("ada", session_id="s1")
        await cache.delete("ada", "s1")
        await raised(SessionNotFoundError, old.touch(messages=1))
        new = await cache.create("ada", session_id="s1")
        await raised(SessionNotFoundError, old.touch(messages=1))
        await raised(SessionNotFoundError, old.rename("old"))
        await new.refresh()
        assert (new.message_count, new.title) == (0, "")


class TestTitles(Conformance):
    """Titles that are derived once, and renaming."""

    async def test_the_first_message_gives_a_title(self, cache: Cache) -> None:
        made = await cache.create("ada")
        info = await made.touch(first_message="  Where is\n my  luggage? ")
        assert info.title == made.title == "Where is my luggage?"
        assert (await cache.get("ada", made.id)).title == "Where is my luggage?"

    async def test_a_title_is_derived_once(self, cache: Cache) -> None:
        made = await cache.create("ada", title="Mine")
        assert (await made.touch(first_message="Other")).title == "Mine"
        second = await cache.create("ada")
        await second.touch(first_message="First")
        assert (await second.touch(first_message="Second")).title == "First"

    async def test_a_derived_title_has_at_most_60_characters(self, cache: Cache) -> None:
        made = await cache.create("ada")
        title = (await made.touch(first_message="word " * 100)).title
        assert 0 < len(title) <= 60
        assert title.startswith("word word word")

    async def test_a_first_message_without_text_leaves_the_title_to_the_next(self, cache: Cache) -> None:
        made = await cache.create("ada")
        assert (await made.touch(first_message=" \n\0 ")).title == ""
        assert (await made.touch(first_message="Hello")).title == "Hello"

    async def test_rename_sets_the_title_and_moves_updated_at(self, cache: Cache) -> None:
        made = await cache.create("ada", session_id="s1", state={"a": 1}, title="old")
        info = await cache.rename("ada", "s1", "new title")
        assert (info.id, info.title) == ("s1", "new title")
        assert info.updated_at > made.updated_at
        found = await cache.get("ada", "s1")
        assert (found.title, found.updated_at, found.revision) == ("new title", info.updated_at, made.revision)
        assert (await made.rename("")).title == made.title == ""
        assert (await cache.get("ada", "s1")).title == ""

    async def test_a_wrong_title_changes_nothing(self, cache: Cache) -> None:
        made = await cache.create("ada", title="old")
        for wrong in (1, None, "a\0b", "\ud800"):
            await raised(InvalidNameError, made.rename(wrong))
        await raised(LimitExceededError, made.rename("x" * 2_000))
        await raised(SessionNotFoundError, cache.rename("ada", "none", "x"))
        found = await cache.get("ada", made.id)
        assert (found.title, found.updated_at) == ("old", made.updated_at)


class TestClearing(Conformance):
    """s.clear."""

    async def test_clear_removes_the_plain_private_keys_only(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 2, "user:u": 1, "app:p": 1, "temp:t": 1}, title="kept")
        await made.namespace("n").set("x", 1)
        before = made.revision
        assert await made.clear() == 2
        assert dict(made.state) == {"user:u": 1, "app:p": 1, "temp:t": 1}
        found = await cache.get("ada", made.id)
        assert dict(found.state) == {"user:u": 1, "app:p": 1, "temp:t": 1}
        assert await found.namespace("n").items() == [("x", 1)]
        assert (found.title, found.created_at) == ("kept", made.created_at)
        assert found.revision == made.revision > before

    async def test_clearing_nothing_tells_so(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"user:u": 1})
        assert await made.clear() == 0

    async def test_what_was_cleared_stays_away_and_what_comes_after_stays(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1, "b": 2})
        await made.flush()
        await made.clear()
        await made.set("b", 3)
        await made.flush()
        assert dict((await cache.get("ada", made.id)).state) == {"b": 3}
        assert await made.clear() == 1
        await made.flush()
        assert dict((await cache.get("ada", made.id)).state) == {}

    async def test_an_edit_notices_that_its_key_was_cleared(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})

        async def conflict() -> None:
            async with made.edit() as draft:
                await (await cache.get("ada", made.id)).clear()
                draft["a"] = 2

        await raised(StaleSessionError, conflict())
        assert await made.get("a") is None

    async def test_an_older_life_is_not_cleared(self, cache: Cache) -> None:
        old = await cache.create("ada", session_id="s1", state={"a": 1})
        await cache.delete("ada", "s1")
        new = await cache.create("ada", session_id="s1", state={"a": 2})
        await raised(SessionNotFoundError, old.clear())
        assert await new.get("a") == 2
