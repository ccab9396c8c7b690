"""Fences and the layout record: compare-and-set between processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from sessioncache.durable.messages import Swap
from sessioncache.durable.migrate import upgrade_schema
from sessioncache.durable.tier import DurableTier
from sessioncache.errors import ConfigurationError
from sessioncache.primitives.ownership import tag_of
from tests.durable_helpers import count_rows


@pytest.fixture
async def tier(database_url: str) -> AsyncIterator[DurableTier]:
    made = DurableTier.connect(database_url)
    await upgrade_schema(made.engine)
    yield made
    await made.aclose()


async def test_registering_swaps_what_is_still_as_read(tier: DurableTier) -> None:
    assert await tier.swap_fences({7: (None, "a"), 2: (None, "b")}) == {7: Swap.SWAPPED, 2: Swap.SWAPPED}
    assert await tier.read_fences([2, 7, 9]) == {2: "b", 7: "a"}
    assert await tier.swap_fences({7: ("a", "c"), 2: ("b", "b")}) == {7: Swap.SWAPPED, 2: Swap.CURRENT}
    assert await tier.read_fences([2, 7]) == {2: "b", 7: "c"}
    assert await count_rows(tier, "incarnation") == 3


async def test_what_somebody_else_changed_has_moved(tier: DurableTier) -> None:
    await tier.swap_fences({1: (None, "a")})
    assert await tier.swap_fences({1: (None, "b")}) == {1: Swap.MOVED}
    assert await tier.swap_fences({1: ("x", "b")}) == {1: Swap.MOVED}
    assert await tier.swap_fences({5: ("x", "b")}) == {5: Swap.MOVED}
    assert await tier.read_fences([1, 5]) == {1: "a"}
    assert await count_rows(tier, "incarnation") == 1


async def test_a_replaced_incarnation_never_comes_back(tier: DurableTier) -> None:
    await tier.swap_fences({1: (None, "a")})
    await tier.swap_fences({1: ("a", "b")})
    for old in ("b", "a", None):
        assert await tier.swap_fences({1: (old, "a")}) == {1: Swap.REPLACED}
    assert await tier.read_fences([1]) == {1: "b"}
    assert await tier.swap_fences({1: ("x", "b")}) == {1: Swap.CURRENT}
    assert await tier.swap_fences({2: (None, "a")}) == {2: Swap.SWAPPED}


@pytest.mark.parametrize("old", [None, "start"])
async def test_of_racing_swaps_one_wins(tier: DurableTier, old: str | None) -> None:
    buckets = range(12)
    if old:
        await tier.swap_fences(dict.fromkeys(buckets, (None, old)))
    names = ["a", "b", "c", "d"]
    orders = [dict.fromkeys(buckets if i % 2 else reversed(buckets)) for i in range(len(names))]
    results = await asyncio.gather(
        *(tier.swap_fences(dict.fromkeys(order, (old, name))) for name, order in zip(names, orders, strict=True))
    )
    fences = await tier.read_fences(list(buckets))
    for bucket in buckets:
        verdicts = {name: result[bucket] for name, result in zip(names, results, strict=True)}
        assert verdicts.pop(fences[bucket]) is Swap.SWAPPED
        assert set(verdicts.values()) == {Swap.MOVED}


async def test_processes_that_register_the_same_incarnation_all_succeed(tier: DurableTier) -> None:
    changes: dict[int, tuple[str | None, str]] = {bucket: (None, f"i{bucket}") for bucket in range(64)}
    results = await asyncio.gather(*(tier.swap_fences(changes) for _ in range(4)))
    assert {verdict for result in results for verdict in result.values()} <= {Swap.CURRENT, Swap.SWAPPED}


async def test_as_many_buckets_as_there_can_be(tier: DurableTier) -> None:
    changes: dict[int, tuple[str | None, str]] = {bucket: (None, f"i{bucket}") for bucket in range(16_384)}
    assert set((await tier.swap_fences(changes)).values()) == {Swap.SWAPPED}
    assert await tier.read_fences(list(changes)) == {bucket: new for bucket, (_, new) in changes.items()}


async def test_the_layout_is_recorded_once(tier: DurableTier) -> None:
    assert await tier.read_layout() == {}
    assert await tier.record_layout({"buckets": "8", "installation": "x"}) == {"buckets": "8", "installation": "x"}
    assert await tier.record_layout({"buckets": "9", "version": "1"}) == {
        "buckets": "8",
        "installation": "x",
        "version": "1",
    }
    assert await tier.record_layout({}) == await tier.read_layout()


async def test_racing_processes_agree_on_the_layout(tier: DurableTier) -> None:
    offers = [{"installation": str(i), "buckets": str(i)} for i in range(5)]
    answers = await asyncio.gather(*(tier.record_layout(offer) for offer in offers))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0] in offers


async def test_the_clock_counts_microseconds(tier: DurableTier) -> None:
    before = time.time_ns() // 1000
    assert before - 2_000 <= await tier.clock() <= time.time_ns() // 1000 + 2_000


async def test_r18_an_incarnation_of_another_database_is_refused_though_a_fence_names_it(tier: DurableTier) -> None:
    await tier.record_layout({"installation": "own"})
    await tier.swap_fences({1: (None, "b"), 2: (None, other := f"a{tag_of('own')}")})
    assert await tier.named_by_fences({1: "b", 2: other, 3: "c"}) == {1: "b", 2: other}
    async with tier.engine.begin() as connection:
        await connection.execute(
            text("UPDATE sessioncache_layout SET value = 'another' WHERE name = 'installation'"),
        )
    with pytest.raises(ConfigurationError):
        await tier.named_by_fences({2: other})
