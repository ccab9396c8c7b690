"""Run leases: one holder at a time, whose late writes are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessioncache.errors import LeaseUnavailableError, SessionNotFoundError, StaleLeaseError
from sessioncache.testing.conformance.base import Cache, Conformance, raised

_WRITES: dict[str, Any] = {
    "set": lambda held: held.set("a", "late"),
    "set user:": lambda held: held.set("user:u", "late"),
    "set temp:": lambda held: held.set("temp:t", "late"),
    "update": lambda held: held.update({"a": "late", "b": "late"}),
    "delete": lambda held: held.delete("a"),
    "increment": lambda held: held.increment("n"),
    "append": lambda held: held.append("l", "late"),
    "fork": lambda held: held.fork(new_id="late"),
}


async def _take(session: Any, **options: Any) -> None:
    async with session.lease(**options):
        pass


class TestLeases(Conformance):
    """async with s.lease() as held."""

    async def test_the_holder_writes_as_through_any_handle(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        async with made.lease() as held:
            assert (held.id, held.user) == (made.id, "ada")
            assert await held.get("a") == 1
            await held.update({"b": 2, "user:u": 1, "temp:t": 1})
            assert await held.increment("a") == 2
            async with held.edit() as draft:
                draft["b"] += 1
        assert dict((await cache.get("ada", made.id)).state) == {"a": 2, "b": 3, "user:u": 1, "temp:t": 1}

    async def test_the_holder_begins_with_what_was_there_when_the_lease_was_taken(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": 1})
        await (await cache.get("ada", made.id)).update({"a": 2, "user:u": 2})
        async with made.lease() as held:
            assert dict(held.state) == {"a": 2, "user:u": 2}
            await held.update({"a": 3}, if_revision=held.revision)
        assert dict(made.state) == {"a": 1}

    async def test_a_second_runner_is_refused(self, cache: Cache) -> None:
        made = await cache.create("ada")
        async with made.lease():
            other = await cache.get("ada", made.id)
            await raised(LeaseUnavailableError, _take(other))
            await raised(LeaseUnavailableError, _take(made))
        await _take(other)

    async def test_other_handles_may_still_write(self, cache: Cache) -> None:
        made = await cache.create("ada")
        async with made.lease() as held:
            await (await cache.get("ada", made.id)).set("a", 1)
            assert await held.get("a") == 1
            await held.set("b", 2)

    async def test_a_runner_may_wait_for_its_turn(self, cache: Cache) -> None:
        made = await cache.create("ada")
        order: list[str] = []

        async def second() -> None:
            async with (await cache.get("ada", made.id)).lease(wait=30) as held:
                order.append("second")
                await held.set("a", "second")

        async with made.lease() as held:
            waiting = asyncio.create_task(second())
            await held.set("a", "first")
            order.append("first")
        await waiting
        assert order == ["first", "second"]
        assert await made.get("a") == "second"

    @pytest.mark.parametrize("write", _WRITES)
    async def test_a_late_write_of_a_former_holder_is_refused(self, cache: Cache, write: str) -> None:
        state = {"a": 1, "n": 1, "l": []}
        made = await cache.create("ada", state=state)
        async with made.lease() as former:
            pass
        await raised(StaleLeaseError, _WRITES[write](former))
        async with made.lease():
            await raised(StaleLeaseError, _WRITES[write](former))
        assert dict((await cache.get("ada", made.id)).state) == state

    async def test_an_error_in_the_block_gives_the_lease_back(self, cache: Cache) -> None:
        made = await cache.create("ada")

        async def stumble() -> None:
            async with made.lease():
                raise ZeroDivisionError

        await raised(ZeroDivisionError, stumble())
        await _take(made)

    async def test_leases_of_different_sessions_are_apart(self, cache: Cache) -> None:
        first, second = await cache.create("ada"), await cache.create("ada")
        async with first.lease(), second.lease():
            pass

    async def test_a_lease_ends_with_its_session(self, cache: Cache) -> None:
        old = await cache.create("ada", session_id="s1")
        async with old.lease() as held:
            await cache.delete("ada", "s1")
            await raised(SessionNotFoundError, held.set("a", 1))
            new = await cache.create("ada", session_id="s1")
            async with new.lease() as held_anew:
                await held_anew.set("a", 2)
                await raised(SessionNotFoundError, held.set("a", 1))
            assert await new.get("a") == 2
        await raised(SessionNotFoundError, _take(old))

    async def test_of_many_runners_one_wins(self, cache: Cache) -> None:
        made = await cache.create("ada")
        everyone_tried = asyncio.Event()
        left = 10

        def tried() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                everyone_tried.set()

        async def run() -> bool:
            session = await cache.get("ada", made.id)
            try:
                async with session.lease():
                    tried()
                    await everyone_tried.wait()
                    return True
            except LeaseUnavailableError:
                tried()
                return False

        runners = [asyncio.create_task(run()) for _ in range(10)]
        assert sorted(await asyncio.gather(*runners)) == [False] * 9 + [True]
