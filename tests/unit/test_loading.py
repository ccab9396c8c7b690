"""Who waits for a scope to be loaded, or compared with SQL, is told which tier did not answer in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from sessioncache.coordination.hydration import Hydrator
from sessioncache.coordination.revalidation import Revalidator
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.layout import Layout
from sessioncache.hot.merging import TakenScope
from sessioncache.hot.messages import Token
from sessioncache.hot.reconciling import Looked
from sessioncache.primitives.deadline import within
from sessioncache.primitives.entries import Head, StoredScope
from sessioncache.primitives.revisions import encode_revision
from sessioncache.primitives.scopes import user_ref

PLACE = Layout("t", 2).place(user_ref(2, "org", "app", "u"))


async def never(*_: Any, **__: Any) -> None:
    """A server that does not answer."""
    await asyncio.Event().wait()


def revalidator(merging: Any, durable: Any) -> Revalidator:
    """One over tiers that are as a test makes them."""
    merging.take_tokens = AsyncMock(return_value=[TakenScope(PLACE, b"token", "incarnation")])
    merging.kept = lambda _: nullcontext()
    merging.release = AsyncMock()
    return Revalidator(merging, durable, Mock(), Mock())


async def revalidate(one: Revalidator) -> None:
    """Wait for it as a call does whose time is soon over."""
    try:
        with within(0.05):
            await one.revalidate(PLACE)
    finally:
        await one.aclose()


async def test_a_revalidation_that_waits_for_redis_names_redis() -> None:
    with pytest.raises(HotTierUnavailableError):
        await revalidate(revalidator(Mock(look=never), Mock()))


async def test_a_revalidation_that_waits_for_sql_names_sql() -> None:
    looks = AsyncMock(return_value=[Mock(spec=Looked, since=0)])
    with pytest.raises(DurableTierUnavailableError):
        await revalidate(revalidator(Mock(look=looks), Mock(read_changes=never)))


class Parts:
    """Scopes that are revalidated, and how many are brought together at a time."""

    def __init__(self, sizes: Sequence[int], told: int = 1_000) -> None:
        """`told`: of how many scopes SQL tells at a time."""
        self.looked: list[int] = []
        self.asked: list[int] = []
        self.done: list[int] = []
        layout = Layout("t", 2)
        self.places = [layout.place(user_ref(2, "org", "app", str(number))) for number in range(len(sizes))]
        taken = [TakenScope(place, b"token", "inc", size) for place, size in zip(self.places, sizes, strict=True)]
        merging = Mock(look=self._look, carry_out=self._carry_out, take_tokens=AsyncMock(return_value=taken))
        merging.kept, merging.release = lambda _: nullcontext(), AsyncMock()
        self._told = told
        self.revalidator = Revalidator(merging, Mock(read_changes=self._read), Mock(), Mock())

    async def _look(self, taken: Sequence[TakenScope]) -> list[Looked]:
        self.looked.append(len(taken))
        head = [b"old", None, *[encode_revision(5)] * 3, None, *[None] * 7]
        return [Looked.of("inc", 5, head, []) for _ in taken]

    async def _read(self, wanted: Sequence[Any]) -> list[StoredScope]:
        self.asked.append(len(wanted))
        head = Head("org", "app", "", "", revision=5, birth=5, flushed=5)
        return [StoredScope(head, [], 5) for _ in wanted[: self._told]]

    async def _carry_out(self, jobs: Sequence[Any]) -> list[int]:
        self.done.append(len(jobs))
        return [0] * len(jobs)


MIB = 1024 * 1024


async def test_as_many_scopes_are_brought_together_as_are_of_16_mib() -> None:
    parts = Parts([6 * MIB, 6 * MIB, 6 * MIB, 20 * MIB, 1, 1])
    assert await parts.revalidator.revalidate_all(parts.places) == {}
    assert parts.looked == [2, 1, 1, 2]


async def test_small_scopes_are_all_brought_together() -> None:
    parts = Parts([1_000] * 128)
    await parts.revalidator.revalidate_all(parts.places)
    assert (parts.looked, parts.asked, parts.done) == ([128], [128], [128])


async def test_what_sql_did_not_tell_at_once_is_asked_for_again() -> None:
    parts = Parts([1] * 5, told=2)
    await parts.revalidator.revalidate_all(parts.places)
    assert (parts.looked, parts.asked, parts.done) == ([5], [5, 3, 1], [2, 2, 1])


async def hydrate(hot: Any, durable: Any) -> None:
    """Wait for a loading as a call does whose time is soon over."""
    hydrator = Hydrator(hot, durable, Mock())
    try:
        with within(0.05):
            await hydrator.hydrate([PLACE])
    finally:
        await hydrator.aclose()


async def test_a_load_that_waits_for_another_process_says_so() -> None:
    with pytest.raises(DurableTierUnavailableError, match="another process has been loading or creating it"):
        await hydrate(Mock(take_token=AsyncMock(return_value=2.0)), Mock())


async def test_a_load_that_waits_for_redis_names_redis() -> None:
    with pytest.raises(HotTierUnavailableError):
        await hydrate(Mock(take_token=never), Mock())


async def test_a_load_that_waits_for_sql_names_sql() -> None:
    hot = Mock(take_token=AsyncMock(return_value=Token(b"token", b"incarnation", b"")), confirm_absent=AsyncMock())
    hot.kept = lambda *_: nullcontext()
    with pytest.raises(DurableTierUnavailableError, match="from the database in time"):
        await hydrate(hot, Mock(read_scopes=never))
