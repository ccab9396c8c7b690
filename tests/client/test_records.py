"""Records over both tiers: times survive what entries survive, and the newest wins whoever comes first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from sessioncache import LimitExceededError, Record, Session, SessionCache, SessionNotFoundError, StaleLeaseError
from sessioncache.operations.dead_letters import DeadLetterQueue
from sessioncache.settings import MAX_VALUE_BYTES
from tests.helpers import (
    Urls,
    drain,
    execute,
    fetch,
    raw,
    session,
    settle,
    stored_values,
)

EPOCH, TICK = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
T0 = datetime(2020, 1, 2, 3, 4, 5, 678901, UTC)
LAST = EPOCH + (2**54 - 1) * TICK
TIMES = {"first": EPOCH, "past": T0, "far": LAST - TICK, "last": LAST}
"""The times given to records of the same name."""


@pytest.fixture
async def made(cache: SessionCache) -> Session:
    """A session with records of given times, and one without."""
    return await make(cache)


@pytest.fixture
async def small(small_cache: SessionCache) -> Session:
    """The same, where the engines do not matter."""
    return await make(small_cache)


async def make(cache: SessionCache) -> Session:
    """A session with records of given times, and one without."""
    session = await cache.create("ada", session_id="s1", state={"own": [0]})
    for key, at in TIMES.items():
        assert await session.upsert_record(Record(key, [key], at))
    return session


async def shown(cache: SessionCache, session_id: str = "s1") -> list[Record]:
    """The records of a session, as a new handle reads them."""
    return await (await cache.get("ada", session_id)).records()


def given(urls: Urls, session_id: str = "s1") -> dict[str, int | None]:
    """The times in SQL, in microseconds."""
    query = "SELECT key, given_at FROM sessioncache_state WHERE scope_id = ?"
    return dict(fetch(urls.database, query, session("ada", session_id).id))


async def test_a_flush_an_eviction_and_a_hydration_keep_records_as_they_are(
    cache: SessionCache, made: Session, urls: Urls
) -> None:
    before = await made.records()
    assert {one.key: one.updated_at for one in before} == {**TIMES, "own": made.created_at}
    for _ in range(2):
        await settle(urls)
        assert await shown(cache) == before
    assert await made.upsert_record(Record("past", "older", T0 - TICK)) is False
    await settle(urls)
    assert await made.upsert_record(Record("own", "older", made.created_at - TICK)) is False, "cold, too"
    assert await shown(cache) == before


async def test_sql_has_the_json_alone_and_the_time_beside_it(made: Session, urls: Urls) -> None:
    await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == {"own": [0], **{key: [key] for key in TIMES}}
    assert given(urls) == {"own": None, **{key: (at - EPOCH) // TICK for key, at in TIMES.items()}}
    await made.set("past", 1)
    await made.delete("far")
    await drain(urls)
    assert (given(urls)["past"], given(urls)["far"]) == (None, None)


async def test_flush_proves_a_record_by_the_row_it_became(made: Session, urls: Urls) -> None:
    await drain(urls)
    with raw(urls.redis) as client:
        client.flushall()
    await made.flush()
    assert {one.key: one.updated_at for one in await made.records()} == {**TIMES, "own": made.created_at}


async def test_a_record_that_was_left_out_need_not_become_durable(small: Session, small_urls: Urls) -> None:
    made, urls = small, small_urls
    await drain(urls)
    await made.flush()
    assert await made.upsert_record(Record("past", "older", T0 - TICK)) is False
    assert not made.unflushed
    with raw(urls.redis) as client:
        client.flushall()
    await made.flush()


async def test_records_survive_a_redis_that_forgets_in_part(cache: SessionCache, made: Session, urls: Urls) -> None:
    await drain(urls)
    await made.upsert_record(Record("past", "newer", T0 + TICK))
    before = await made.records()
    with raw(urls.redis) as client:
        client.delete(f"sessioncache:{{{session('ada', 's1').bucket}}}:ctl")  # the hash is of an older incarnation now
        client.hdel(f"sessioncache:{{{session('ada', 's1').bucket}}}:h:{session('ada', 's1').member}", "=last")
    assert await shown(cache) == before
    await settle(urls)
    assert await shown(cache) == before


@pytest.mark.parametrize("where", ["hot", "cold"])
async def test_a_fork_keeps_given_times_and_is_durable(
    cache: SessionCache, made: Session, urls: Urls, where: str
) -> None:
    if where == "cold":
        await settle(urls)
    child = await cache.fork("ada", "s1", new_id="s2")
    wanted = {**TIMES, "own": child.created_at}
    assert {one.key: one.updated_at for one in await child.records()} == wanted
    await settle(urls)
    await child.flush()
    assert {one.key: one.updated_at for one in await shown(cache, "s2")} == wanted
    assert given(urls, "s2") == given(urls)
    assert {one.session_id for one in await shown(cache, "s2")} == {"s2"}


async def test_the_newest_of_eight_writers_wins_whatever_the_order(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1")
    shuffled = list(range(160))
    Random(1).shuffle(shuffled)
    writers = [await cache.get("ada", "s1") for _ in range(8)]

    async def write(number: int, writer: Session) -> list[int]:
        mine = shuffled[number::8]
        return [n for n in mine if await writer.upsert_record(Record(f"k{n % 4}", n, T0 + n * TICK))]

    taken = [n for part in await asyncio.gather(*(write(*one) for one in enumerate(writers))) for n in part]
    newest = {f"k{n % 4}": n for n in sorted(shuffled)}
    assert {*newest.values()} <= {*taken}
    for _ in range(2):
        records = await shown(cache)
        assert {one.key: (one.value, one.updated_at) for one in records} == {
            key: (n, T0 + n * TICK) for key, n in newest.items()
        }
        await settle(urls)


async def test_an_old_handle_of_a_session_made_again_is_refused(
    small_cache: SessionCache, small: Session, small_urls: Urls
) -> None:
    cache, made, urls = small_cache, small, small_urls
    await cache.delete("ada", "s1")
    new = await cache.create("ada", session_id="s1")
    for late in (Record("past", 1), Record("past", 1, LAST)):
        with pytest.raises(SessionNotFoundError):
            await made.upsert_record(late)
    with pytest.raises(SessionNotFoundError):
        await made.records()
    assert await new.upsert_record(Record("last", 1, EPOCH)) is True
    await settle(urls)
    assert [(one.key, one.updated_at) for one in await shown(cache)] == [("last", EPOCH)]


async def test_a_runner_that_lost_its_lease_gives_no_record(small: Session, small_urls: Urls) -> None:
    made, urls = small, small_urls
    bucket = f"sessioncache:{{{session('ada', 's1').bucket}}}:ctl"
    async with made.lease() as held:
        assert await held.upsert_record(Record("past", "mine", T0 + TICK)) is True
        with raw(urls.redis) as client:
            client.hdel(bucket, f"l:{session('ada', 's1').member}")
        for late in (Record("past", "late"), Record("past", "late", LAST), Record("past", "older", T0)):
            with pytest.raises(StaleLeaseError):
                await held.upsert_record(late)
    assert await made.get("past") == "mine"


async def test_a_record_of_the_largest_value_is_taken(small_cache: SessionCache) -> None:
    made = await small_cache.create("ada")
    largest = "x" * (MAX_VALUE_BYTES - 2)
    assert await made.upsert_record(Record("k", largest, T0)) is True
    with pytest.raises(LimitExceededError):
        await made.upsert_record(Record("k", largest + "x", LAST))
    assert (await made.records())[0].updated_at == T0


async def test_a_dropped_letter_goes_back_to_the_record_that_sql_has(
    small_cache: SessionCache, small_urls: Urls
) -> None:
    cache, urls = small_cache, small_urls
    made = await cache.create("ada", session_id="s1")
    await made.upsert_record(Record("k", "kept", T0))
    await drain(urls)
    execute(
        urls.database,
        "CREATE TRIGGER refuse BEFORE UPDATE ON sessioncache_state WHEN NEW.value = '\"refused\"'"
        " BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    await made.upsert_record(Record("k", "refused", LAST))
    letters = DeadLetterQueue(cache._tiers)
    for _ in range(5):
        await drain(urls)
    (letter,) = await letters.list()
    assert letter.bytes == len('"refused"')
    assert await letters.drop(letter.id) is True
    assert [(one.value, one.updated_at) for one in await made.records()] == [("kept", T0)]
    await settle(urls)
    assert [(one.value, one.updated_at) for one in await shown(cache)] == [("kept", T0)]
