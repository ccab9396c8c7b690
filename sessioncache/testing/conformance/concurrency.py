"""Many tasks of one process at once: nothing is lost, nothing counts twice."""

from __future__ import annotations

import asyncio

from sessioncache.errors import SessionExistsError, StaleSessionError
from sessioncache.testing.conformance.base import Cache, Conformance

MANY = 50


class TestConcurrency(Conformance):
    """State and sessions under many tasks."""

    async def test_every_increment_counts(self, cache: Cache) -> None:
        made = await cache.create("ada")
        handles = [await cache.get("ada", made.id) for _ in range(MANY)]
        keys = ("n", "user:n", "app:n", "temp:n")
        results = await asyncio.gather(*(handle.increment(key) for handle in handles for key in keys))
        assert sorted(results) == sorted(4 * list(range(1, MANY + 1)))
        found = await cache.get("ada", made.id)
        assert [found.state[key] for key in keys] == [MANY] * 4

    async def test_every_increment_of_a_float_or_a_large_number_counts(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"big": 2**70, "half": 0.0})
        await asyncio.gather(
            *(made.increment("big") for _ in range(10)), *(made.increment("half", 0.5) for _ in range(10))
        )
        assert (await made.get("big"), await made.get("half")) == (2**70 + 10, 5.0)

    async def test_every_append_is_kept(self, cache: Cache) -> None:
        made = await cache.create("ada")
        lengths = await asyncio.gather(*(made.append("l", number) for number in range(MANY)))
        assert sorted(lengths) == list(range(1, MANY + 1))
        assert sorted(await made.get("l")) == list(range(MANY))

    async def test_writers_of_different_keys_all_keep_them(self, cache: Cache) -> None:
        made = await cache.create("ada")
        handles = [await cache.get("ada", made.id) for _ in range(MANY)]
        await asyncio.gather(
            *(handle.update({f"k{n}": n, f"user:k{n}": n, f"app:k{n}": n}) for n, handle in enumerate(handles))
        )
        found = await cache.get("ada", made.id)
        expected = {f"{prefix}k{n}": n for n in range(MANY) for prefix in ("", "user:", "app:")}
        assert dict(found.state) == expected

    async def test_one_of_many_creates_wins(self, cache: Cache) -> None:
        creates = (cache.create("ada", session_id="s1", state={"n": n, "user:n": n}) for n in range(MANY))
        outcomes = await asyncio.gather(*creates, return_exceptions=True)
        won = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, SessionExistsError)]
        assert (len(won), len(lost)) == (1, MANY - 1)
        assert dict((await cache.get("ada", "s1")).state) == {"n": won[0], "user:n": won[0]}

    async def test_get_or_create_creates_one_session_for_all(self, cache: Cache) -> None:
        outcomes = await asyncio.gather(*(cache.get_or_create("ada", "s1", state={"n": n}) for n in range(MANY)))
        assert [created for _, created in outcomes].count(True) == 1
        assert len({handle.created_at for handle, _ in outcomes}) == 1
        assert len((await cache.list()).items) == 1

    async def test_one_of_many_deletes_finds_the_session(self, cache: Cache) -> None:
        await cache.create("ada", session_id="s1")
        outcomes = await asyncio.gather(*(cache.delete("ada", "s1") for _ in range(10)))
        assert sorted(outcomes) == [False] * 9 + [True]

    async def test_of_many_edits_of_one_key_none_is_overwritten(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"n": 0})
        done = 0

        async def add() -> None:
            nonlocal done
            handle = await cache.get("ada", made.id)
            try:
                async with handle.edit() as draft:
                    draft["n"] += 1
            except StaleSessionError:
                return
            done += 1

        await asyncio.gather(*(add() for _ in range(20)))
        assert await made.get("n") == done > 0

    async def test_writes_on_one_revision_win_once(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"n": 0})
        handles = [await cache.get("ada", made.id) for _ in range(20)]
        writes = (handle.update({"n": n}, if_revision=made.revision) for n, handle in enumerate(handles))
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        won = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
        assert len(won) == 1
        assert await made.get("n") == won[0]

    async def test_creates_at_once_leave_shared_keys_that_others_change(self, cache: Cache) -> None:
        shared = cache.user_scope("ada")

        async def write(name: str) -> None:
            for number in range(10):
                await cache.user_scope("ada").set(name, number)

        await asyncio.gather(
            *(cache.create("ada", state={"n": n, f"user:s{n}": n}) for n in range(MANY)),
            *(write(f"w{n}") for n in range(8)),
        )
        await shared.refresh()
        assert dict(shared.state) == {f"s{n}": n for n in range(MANY)} | {f"w{n}": 9 for n in range(8)}
