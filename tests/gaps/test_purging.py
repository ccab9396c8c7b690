"""R14: rows leave SQL only when they are dead and past the retention."""

from __future__ import annotations

from sessioncache.durable.tier import DurableTier
from tests.durable_helpers import count_rows, dirt, open_tier, put, session, values_of
from tests.waiting import wait_until_async


async def with_a_tombstone(tier: DurableTier) -> None:
    """A session with a living and a deleted key."""
    await put(tier, dirt(session(), 5, {"gone": b"", "stays": b"1"}))


async def test_a_young_tombstone_stays(sqlite_url: str) -> None:
    async with open_tier(sqlite_url, retention=1000) as tier:
        await with_a_tombstone(tier)
        assert await tier.purge(100) == 0
        assert await count_rows(tier, "state") == 2


async def test_a_tombstone_past_its_retention_goes_and_what_lives_stays(sqlite_url: str) -> None:
    async with open_tier(sqlite_url, retention=1000) as tier:
        await with_a_tombstone(tier)
    async with open_tier(sqlite_url, retention=0.01) as tier:

        async def purged() -> bool:
            return await tier.purge(100) == 1

        await wait_until_async(purged, 5, "the tombstone is past its retention")
        assert await tier.purge(100) == 0
        assert await values_of(tier, session()) == {"stays": b"1"}
