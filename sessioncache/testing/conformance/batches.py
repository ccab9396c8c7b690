"""Batches: many calls noted and made together."""

from __future__ import annotations

from sessioncache import SessionNotFoundError
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
