"""Batches: many calls noted and made together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessioncache.errors import ConfigurationError, InvalidNameError, InvalidValueError, SessionNotFoundError
from sessioncache.testing.conformance.base import Cache, Conformance, raised


class TestBatches(Conformance):
    """Calls that are made together."""

    async def test_calls_are_made_when_the_block_ends(self, cache: Cache) -> None:
        """Reads and writes of many sessions, by the cache's names and on handles."""
        made = [await cache.create("ada", session_id=f"s{n}", state={"n": n}) for n in range(5)]
        async with cache.batch() as batch:
            counts = [batch.on(one).increment("n", 10) for one in made]
            reads = [batch.on(one).get("n") for one in made]
            shared = batch.on(cache.user_scope("ada")).update({"x": 1})
            new = batch.create("ada", session_id="new", state={"y": 2})
        assert [one.result() for one in counts] == [10, 11, 12, 13, 14]
        assert [one.result() for one in reads] == [10, 11, 12, 13, 14], "after the call before on the same session"
        assert shared.result() > 0
        assert dict(new.result().state)["y"] == 2
        assert await made[0].get("user:x") == 1

    async def test_one_that_fails_fails_alone(self, cache: Cache) -> None:
        """Its error is raised at the end of the block, after all the others were made."""
        made = await cache.create("ada", session_id="s1")

        async def send() -> None:
            async with cache.batch() as batch:
                batch.get("ada", "none")
                batch.on(made).set("a", 1)

        await raised(SessionNotFoundError, send())
        assert await made.get("a") == 1

    async def test_an_error_in_the_block_sends_nothing(self, cache: Cache) -> None:
        """As if no call had been noted."""
        made = await cache.create("ada", session_id="s1")

        async def send() -> None:
            async with cache.batch() as batch:
                batch.on(made).set("a", 1)
                raise ZeroDivisionError

        await raised(ZeroDivisionError, send())
        assert await made.get("a") is None

    async def test_without_check_each_is_asked(self, cache: Cache) -> None:
        """No error is raised at the end of the block."""
        async with cache.batch(check=False) as batch:
            missing, made = batch.get("ada", "none"), batch.create("ada", session_id="s1")
        assert isinstance(missing.error, SessionNotFoundError)
        assert made.error is None
        assert made.result().id == "s1"

    async def test_calls_on_one_session_are_made_in_their_order(self, cache: Cache) -> None:
        """Whether by a handle of it or by its id."""
        made = await cache.create("ada", session_id="s1")
        async with cache.batch() as batch:
            for number in range(30):
                batch.on(made).append("log", number)
            batch.rename("ada", "s1", "renamed")
            read, deleted = batch.get("ada", "s1"), batch.delete("ada", "s1")
            again, created = batch.create("ada", session_id="s1"), batch.get_or_create("ada", "s1")
        assert read.result().state["log"] == list(range(30))
        assert (read.result().title, deleted.result(), created.result()[1]) == ("renamed", True, False)
        assert dict(again.result().state) == {}

    async def test_what_is_noted_is_what_was_given(self, cache: Cache) -> None:
        """Whatever becomes of the objects before the block ends."""
        made = [await cache.create("ada", session_id=f"s{n}") for n in range(3)]
        state: dict[str, Any] = {"list": []}
        async with cache.batch() as batch:
            for number, one in enumerate(made):
                state["n"] = number
                state["list"].append(number)
                batch.on(one).update(state)
        assert [await one.get("n") for one in made] == [0, 1, 2]
        assert [await one.get("list") for one in made] == [[0], [0, 1], [0, 1, 2]]

    async def test_what_cannot_be_written_is_refused_where_it_is_noted(self, cache: Cache) -> None:
        """The others are made."""
        made = await cache.create("ada", session_id="s1")
        async with cache.batch() as batch:
            batch.on(made).set("a", 1)
            _refused(InvalidValueError, lambda: batch.on(made).set("b", object()))
            _refused(InvalidNameError, lambda: batch.on(made).set("", 1))
            _refused(InvalidNameError, lambda: batch.get("ada", ""))
            _refused(ConfigurationError, lambda: batch.on(cache))
        await made.refresh()
        assert dict(made.state) == {"a": 1}

    async def test_results_are_there_once_the_block_has_ended(self, cache: Cache) -> None:
        """A batch is used once."""
        async with cache.batch() as batch:
            pending = batch.create("ada", session_id="s1")
            _refused(ConfigurationError, pending.result)
        assert pending.result().id == "s1"
        _refused(ConfigurationError, lambda: batch.get("ada", "s1"))

    async def test_sessions_and_namespaces_have_calls_of_their_own(self, cache: Cache) -> None:
        """Counters, titles, clearing, items."""
        made = await cache.create("ada", state={"a": 1})
        async with cache.batch() as batch:
            batch.on(made).touch(messages=2)
            batch.on(made).rename("renamed")
            cleared = batch.on(made).clear()
            batch.on(made.namespace("tools")).update({"y": 2, "x": 1})
            items = batch.on(made.namespace("tools")).items()
        assert (made.title, made.message_count, cleared.result()) == ("renamed", 2, 1)
        assert items.result() == [("x", 1), ("y", 2)]


def _refused(kind: type[Exception], call: Callable[[], Any]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected, and nothing was raised")
