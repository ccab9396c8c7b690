"""R14: rows leave SQL only when they are dead and past the retention, and what is gone is noted."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy import text

from sessioncache.durable.errors import StaleReadingError
from sessioncache.durable.purging import BEGINNING, PurgeCursor
from sessioncache.durable.tier import DurableTier
from tests.durable_helpers import BUCKETS, app, count_rows, dirt, open_tier, put, session, user, values_of


async def purge(tier: DurableTier, most: int = 100) -> list[int]:
    """A whole pass; how many rows each of its transactions took out."""
    counts: list[int] = []
    following: PurgeCursor | None = BEGINNING
    while following is not None:
        done = await tier.purge(most, following)
        counts.append(done.rows)
        following = done.following
    return counts


async def make_old(tier: DurableTier) -> None:
    """Everything that is there was flushed long ago."""
    async with tier.engine.begin() as connection:
        await connection.execute(text("UPDATE sessioncache_state SET updated_at = '2020-01-01 00:00:00.000000'"))
        await connection.execute(text("UPDATE sessioncache_session SET flushed_at = '2020-01-01 00:00:00.000000'"))


async def with_a_tombstone(tier: DurableTier) -> None:
    """A session with a living and a deleted key."""
    await put(tier, dirt(session(), 5, {"gone": b"", "stays": b"1"}))


async def test_a_young_tombstone_stays(database_url: str) -> None:
    async with open_tier(database_url, retention=1000) as tier:
        await with_a_tombstone(tier)
        assert sum(await purge(tier)) == 0
        assert await count_rows(tier, "state") == 2


async def test_a_tombstone_past_its_retention_goes_and_what_lives_stays(database_url: str) -> None:
    async with open_tier(database_url) as tier:
        await with_a_tombstone(tier)
        await make_old(tier)
        assert sum(await purge(tier)) == 1
        assert sum(await purge(tier)) == 0
        assert await values_of(tier, session()) == {"stays": b"1"}


async def test_what_purging_took_out_is_noted_per_bucket(database_url: str) -> None:
    async with open_tier(database_url) as tier:
        everywhere = range(BUCKETS)
        assert await tier.read_purged(everywhere) == {}
        await put(tier, dirt(user(), 5, {"gone": b""}), dirt(app(), 9, {"gone": b"", "stays": b"1"}))
        await put(
            tier, dirt(session(user="x"), 7, {"young": b"1"}), dirt(session("d", "x"), 6, deleted=True, cleared=6)
        )
        await make_old(tier)
        await purge(tier)
        noted = {user().bucket: 5, app().bucket: 9, session(user="x").bucket: 6}
        assert len(noted) == 3, "they are in buckets of their own"
        assert await tier.read_purged(everywhere) == noted
        await put(tier, dirt(user(), 12, {"other": b""}), dirt(app(), 13, {"one": b""}))
        await make_old(tier)
        async with tier.engine.begin() as connection:
            await connection.execute(text("UPDATE sessioncache_state SET revision = 4 WHERE key = 'one'"))
        await purge(tier)
        assert await tier.read_purged(everywhere) == noted | {user().bucket: 12}, "raised, and never lowered"


async def test_the_revision_of_a_row_of_no_known_bucket_is_noted_for_all(database_url: str) -> None:
    async with open_tier(database_url) as tier:
        await with_a_tombstone(tier)
        await make_old(tier)
        async with tier.engine.begin() as connection:
            await connection.execute(text("DELETE FROM sessioncache_session"))
        await purge(tier)
        assert await tier.read_purged(range(BUCKETS)) == dict.fromkeys(range(BUCKETS), 5)


@pytest.mark.parametrize("most", [1, 3, 7])
async def test_a_pass_of_small_transactions_takes_out_all_that_is_dead(database_url: str, most: int) -> None:
    async with open_tier(database_url) as tier:
        for number in range(6):
            keys = {f"k{key}": b"" if key % 2 else b"1" for key in range(8)}
            await put(tier, dirt(session(f"s{number}"), 5 + number, keys))
            await put(tier, dirt(session(f"d{number}"), 5 + number, deleted=True, cleared=5 + number))
            await make_old(tier)
        async with tier.engine.begin() as connection:  # of a life that a stopped worker brought back
            await connection.execute(
                text("UPDATE sessioncache_state SET deleted = false, scope_id = :dead WHERE scope_id = :of"),
                {"dead": session("d1").id, "of": session("s1").id},
            )
        counts = await purge(tier, most)
        assert max(counts) <= most + max(1, most // 4)
        assert await count_rows(tier, "state") == 5 * 4
        assert await count_rows(tier, "session") == 6
        assert (await tier.read_purged([session().bucket]))[session().bucket] == 10


async def test_purging_and_flushes_of_the_same_scopes_do_not_wait_for_each_other(postgresql_url: str) -> None:
    refs = [session(f"s{number}") for number in range(40)]
    async with open_tier(postgresql_url, retention=0.002) as tier:

        async def flush() -> None:
            for at in range(10, 30):
                dead = [dirt(ref, at, deleted=True, cleared=at) for ref in refs[::3]]
                living = [dirt(ref, at, {"k": b"1", "gone": b""}) for ref in refs[1::3]]
                with suppress(StaleReadingError):
                    await tier.flush([*dead, *living], read_after=await tier.clock())

        await asyncio.gather(flush(), purge(tier, 20), flush(), purge(tier, 20), flush(), purge(tier, 20))


async def test_purging_leaves_alone_what_somebody_has_under_a_lock(postgresql_url: str) -> None:
    async with open_tier(postgresql_url) as tier:
        await put(tier, dirt(session("a"), 5, {"gone": b""}), dirt(session("b"), 6, {"gone": b""}))
        await put(tier, *(dirt(session(name), 7, deleted=True, cleared=7) for name in ("c", "d")))
        await make_old(tier)
        async with tier.engine.begin() as other:
            for table, name in (("state", "a"), ("session", "c")):
                await other.execute(
                    text(f"SELECT 1 FROM sessioncache_{table} WHERE scope_id = :of FOR UPDATE"),
                    {"of": session(name).id},
                )
            assert await purge(tier) == [1, 1]
        assert await purge(tier) == [1, 1]
