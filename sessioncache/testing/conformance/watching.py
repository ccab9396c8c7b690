"""Watching: who watches learns which keys were written, by whomever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from sessioncache import Change, ConfigurationError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, raised

_PATIENCE = 20
"""Seconds after which a change that has to come counts as lost."""


async def _next(watch: Any) -> Change:
    async with asyncio.timeout(_PATIENCE):
        change: Change = await anext(watch)
        return change


async def _told(watch: Any, number: int) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(c.scope, c.keys, c.missed) for c in [await _next(watch) for _ in range(number)]]


class TestWatching(Conformance):
    """`watch` of sessions, namespaces and shared scopes."""

    async def test_a_change_names_scope_keys_and_revision(self, cache: Cache) -> None:
        session = await cache.create("ada")
        writer = await cache.get("ada", session.id)
        async with session.watch() as changes:
            revision = await writer.set("step", 1)
            assert await _next(changes) == Change("session", ("step",), revision, missed=False)

    async def test_one_write_of_several_scopes_is_one_change_of_each_with_keys_as_the_session_writes_them(
        self, cache: Cache
    ) -> None:
        session = await cache.create("ada")
        async with session.watch() as changes:
            await session.update({"a": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
            assert sorted(await _told(changes, 4)) == [
                ("app", ("app:p",), False),
                ("session", ("a",), False),
                ("temp", ("temp:t",), False),
                ("user", ("user:u",), False),
            ]

    async def test_each_kind_of_write_is_told_in_order(self, cache: Cache) -> None:
        session = await cache.create("ada", state={"gone": 1})
        writer = await cache.get("ada", session.id)
        async with session.watch() as changes:
            await writer.set("a", 1)
            await writer.delete("gone")
            await writer.increment("n")
            await writer.append("l", 1)
            async with writer.edit() as draft:
                draft["e"] = 1
            keys = [("a",), ("gone",), ("n",), ("l",), ("e",)]
            assert await _told(changes, 5) == [("session", one, False) for one in keys]
            await writer.clear()
            cleared = await _next(changes)
            assert set(cleared.keys) == {"a", "n", "l", "e"}
            assert not cleared.missed

    async def test_what_changes_nothing_is_not_told(self, cache: Cache) -> None:
        session = await cache.create("ada")
        async with session.watch() as changes:
            await session.delete("nothing")
            await session.touch(messages=1)
            await session.rename("title")
            await session.namespace("tools").set("x", 1)
            await session.set("last", 1)
            assert await _told(changes, 1) == [("session", ("last",), False)]

    async def test_a_namespace_tells_of_its_own_keys_only(self, cache: Cache) -> None:
        session = await cache.create("ada")
        tools = session.namespace("tools")
        async with tools.watch() as changes:
            await session.set("x", 1)
            await session.namespace("skills").set("x", 1)
            await session.namespace("tools").update({"user:y": 1})
            await session.namespace("tools").clear()
            assert await _told(changes, 2) == [("namespace", ("user:y",), False)] * 2

    async def test_a_shared_scope_tells_what_any_session_writes_to_it(self, cache: Cache) -> None:
        one, two = await cache.create("ada"), await cache.create("ada")
        other = await cache.create("bob")
        async with cache.user_scope("ada").watch() as ada, cache.app_scope().watch() as app:
            await one.set("user:a", 1)
            await two.update({"user:b": 1, "app:p": 1})
            await other.update({"user:c": 1, "app:q": 1})
            assert await _told(ada, 2) == [("user", ("a",), False), ("user", ("b",), False)]
            assert await _told(app, 2) == [("app", ("p",), False), ("app", ("q",), False)]

    async def test_a_watch_without_a_block_begins_with_the_first_change_asked_for(self, cache: Cache) -> None:
        session = await cache.create("ada")
        changes = session.watch()
        first = asyncio.ensure_future(anext(changes))
        writing = asyncio.ensure_future(self._write_until(session, first))
        async with asyncio.timeout(_PATIENCE):
            assert (await first).keys == ("step",)
            await writing
        await changes.aclose()

    async def _write_until(self, session: Any, told: asyncio.Future[Any]) -> None:
        while not told.done():
            await session.increment("step")
            await asyncio.sleep(0.01)

    async def test_changes_written_at_once_are_all_told_in_the_order_of_their_revisions(self, cache: Cache) -> None:
        session = await cache.create("ada")
        async with session.watch() as changes:
            revisions = await asyncio.gather(*(session.set(f"k{n}", n) for n in range(40)))
            told = [await _next(changes) for _ in range(40)]
            assert [change.revision for change in told] == sorted(revisions)
            assert {key for change in told for key in change.keys} == {f"k{n}" for n in range(40)}
            assert not any(change.missed for change in told)

    async def test_a_slow_reader_is_told_that_it_missed_something(self, cache: Cache) -> None:
        session = await cache.create("ada")
        many = 1_001
        async with session.watch() as changes:
            for start in range(0, many, 77):
                numbers = range(start, min(start + 77, many))
                await asyncio.gather(*(session.set(f"k{number}", 0) for number in numbers))
            last = await session.set("last", 1)
            told = [await _next(changes)]
            while told[-1].revision != last:
                told.append(await _next(changes))
            assert any(change.missed for change in told)

    async def test_a_write_of_more_keys_than_are_named_is_told_as_missed(self, cache: Cache) -> None:
        session = await cache.create("ada")
        async with session.watch() as changes:
            revision = await session.update({f"k{number}": number for number in range(1_001)})
            assert await _next(changes) == Change("session", (), revision, missed=True)

    async def test_watching_ends_with_the_session(self, cache: Cache) -> None:
        session = await cache.create("ada", session_id="s1")
        async with session.watch() as changes, session.namespace("tools").watch() as within:
            await session.set("last", 1)
            await cache.delete("ada", "s1")
            await cache.create("ada", session_id="s1", state={"new": 1})
            with suppress(SessionNotFoundError):  # the last words may come, nothing of the new life does
                while True:
                    assert (await _next(changes)).keys in (("last",), ())
            await raised(SessionNotFoundError, _next(within))
        await raised(SessionNotFoundError, session.watch().__anext__())

    async def test_a_block_that_is_left_ends_the_watch(self, cache: Cache) -> None:
        session = await cache.create("ada")
        async with session.watch() as changes:
            pass
        await session.set("a", 1)
        await raised(StopAsyncIteration, _next(changes))

    async def test_closing_the_cache_ends_the_watch(self, open_cache: Any) -> None:
        async with open_cache(app="app", org="closed while watching") as cache:
            session = await cache.create("ada")
            changes = session.watch()
            async with changes:
                waiting = asyncio.ensure_future(_next(changes))
                await asyncio.sleep(0)
                await cache.aclose()
                await raised(ConfigurationError, waiting)
