"""R9: a claim moves the due time a lease ahead, expires by the clock of Redis, and removes nothing."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Place
from sessioncache.primitives.revisions import ZERO
from tests.scripts.bench import BUCKETS, DELAY, LEASE, SECOND, START, Bench, put
from tests.scripts.spaces import with_dirty_namespaces

HOUR = 3600


async def dirty(bench: Bench) -> Place:
    """A session whose flush is due now."""
    place = bench.session()
    await bench.create(place)
    bench.clock.move(DELAY)
    return place


async def test_a_scope_is_claimed_once_its_flush_delay_is_over(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    bench.clock.move(DELAY - 0.001)
    assert await bench.claim(bucket=place.ref.bucket) == []
    bench.clock.move(0.001)
    assert await bench.claim(bucket=place.ref.bucket) == [place.ref.member]


async def test_a_claimed_scope_is_not_claimed_by_another_worker(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    assert await bench.claim("second", bucket=place.ref.bucket) == []


async def test_another_worker_takes_over_when_the_lease_is_over(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    bench.clock.move(LEASE)
    assert await bench.claim("second", bucket=place.ref.bucket) == [place.ref.member]


async def test_a_claim_removes_nothing(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim(bucket=place.ref.bucket)
    assert bench.marks(place) == {b"!"}
    assert bench.due(place) == bench.clock.micros + LEASE * SECOND
    assert bench.since(place) == START


async def test_a_claim_notes_worker_and_time(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("w1", bucket=place.ref.bucket)
    note = bench.ask("HGET", place.control, f"c:{place.ref.member}")
    now = bench.clock.micros
    assert note == f"w1|{now}|{now + round(LEASE * SECOND)}".encode()
    assert await bench.backlog.claims_of(range(BUCKETS)) == {"w1": 1}


async def test_an_acknowledgement_ends_the_claim(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim(bucket=place.ref.bucket)
    await bench.flush(place)
    assert await bench.backlog.claims_of(range(BUCKETS)) == {}


async def test_a_due_date_absurdly_far_ahead_is_taken(bench: Bench) -> None:
    place = await dirty(bench)
    bench.ask("ZADD", bench.key(place, "dirty"), bench.clock.micros + 2 * HOUR * SECOND, place.ref.member)
    assert await bench.claim(bucket=place.ref.bucket) == [place.ref.member]


async def test_a_claim_is_taken_over_after_the_clock_was_set_back_by_hours(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    bench.clock.move(-2 * HOUR)
    assert await bench.claim("second", bucket=place.ref.bucket) == [place.ref.member]


STEPS = (-86_400, -600, -LEASE - DELAY - 1)


@pytest.mark.parametrize("step", STEPS)
async def test_flushing_goes_on_after_the_clock_was_set_back(bench: Bench, step: float) -> None:
    """What was due, what was claimed, and what had just become dirty."""
    bucket = bench.session().ref.bucket
    places = [bench.session(f"s{number}", "u") for number in range(3)]
    await bench.create(places[0])
    bench.clock.move(DELAY)
    await bench.claim("killed", bucket=bucket)
    await bench.create(places[1])
    bench.clock.move(DELAY / 2)
    await bench.create(places[2])
    bench.clock.move(step)
    claims = await bench.backlog.claim([bucket], "w", lease=LEASE, delay=DELAY, most=100)
    found = claims[bucket]
    assert found is not None
    assert set(found.members) == {place.ref.member for place in places}
    assert found.wait == LEASE
    assert await bench.claim("other", bucket=bucket) == [], "the claims of now hold"


async def test_a_claim_that_was_renewed_before_the_clock_was_set_back_is_taken(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    for _ in range(60):
        bench.clock.move(LEASE / 2)
        await bench.renew(place, "first")
    bench.clock.move(-60)
    assert await bench.claim("second", bucket=place.ref.bucket) == [place.ref.member]


@pytest.mark.parametrize("step", [*STEPS, -1])
async def test_what_waits_grows_older_though_the_clock_was_set_back(bench: Bench, step: float) -> None:
    first, last = bench.session("s1"), bench.session("s2")
    await bench.create(first)
    bench.clock.move(0.5)
    await bench.create(last)
    bench.clock.move(step)
    await bench.claim(bucket=first.ref.bucket)
    now = bench.clock.micros
    assert bench.since(last) == now
    assert bench.since(first) == (now - SECOND // 2 if step < -0.5 else START)
    bench.clock.move(30)
    assert await bench.backlog.oldest([first.ref.bucket]) == bench.since(first)
    assert bench.clock.micros - (bench.since(first) or 0) >= 30 * SECOND


async def test_a_flush_that_is_waited_for_is_due_at_once_after_the_clock_was_set_back(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("killed", bucket=place.ref.bucket)
    bench.clock.move(-60)
    await bench.hot.flush_state([place])
    assert bench.due(place) == bench.clock.micros


async def test_asking_for_everything_claims_what_is_not_due_yet(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    assert await bench.claim(bucket=place.ref.bucket, everything=True) == [place.ref.member]


async def test_asking_for_everything_leaves_living_claims_alone(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    bench.clock.move(LEASE / 2)
    assert await bench.claim("second", bucket=place.ref.bucket, everything=True) == []


async def test_no_more_scopes_are_claimed_than_asked_for(bench: Bench) -> None:
    places = [bench.session(f"s{number}") for number in range(3)]
    for place in places:
        await bench.create(place)
    bucket = places[0].ref.bucket
    assert len(await bench.claim("w", bucket=bucket, everything=True, most=2)) == 2
    assert len(await bench.claim("w", bucket=bucket, everything=True, most=2)) == 1


async def test_a_claim_tells_how_long_until_the_next_scope_is_due(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    bench.clock.move(0.25)
    bucket = place.ref.bucket
    claims = await bench.backlog.claim([bucket, 1 - bucket], "w", lease=LEASE, delay=DELAY, most=1)
    found, other = claims[bucket], claims[1 - bucket]
    assert found is not None
    assert other is not None
    assert (found.wait, found.members, other.wait) == (DELAY - 0.25, [], None)


async def test_the_flush_delay_of_the_worker_holds_for_later_writes(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.backlog.claim([place.ref.bucket], "w", lease=LEASE, delay=7, most=100, everything=True)
    await bench.flush(place)
    await bench.write(place, put("k", "1"))
    assert bench.due(place) == bench.clock.micros + 7 * SECOND


async def test_a_holder_that_works_long_renews_its_lease(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    bench.clock.move(LEASE - 1)
    assert await bench.renew(place, "first") == 1
    bench.clock.move(LEASE - 1)
    assert await bench.claim("second", bucket=place.ref.bucket) == []


async def test_only_the_holder_renews(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    bench.clock.move(LEASE)
    await bench.claim("second", bucket=place.ref.bucket)
    due = bench.due(place)
    bench.clock.move(1)
    assert await bench.renew(place, "first") == 0
    assert bench.due(place) == due


async def test_renewing_what_was_acknowledged_does_not_make_it_dirty(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    await bench.flush(place)
    assert await bench.renew(place, "first") == 0
    assert bench.due(place) is None


async def test_renewing_a_claim_whose_scope_is_clean_does_not_make_it_dirty(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    note = bench.ask("HGET", place.control, f"c:{place.ref.member}")
    await bench.flush(place)
    bench.ask("HSET", place.control, f"c:{place.ref.member}", note)
    assert await bench.renew(place, "first") == 0
    assert bench.due(place) is None
    bench.ask("HDEL", place.control, f"c:{place.ref.member}")


async def test_asking_how_far_a_scope_is_flushed_pulls_its_flush_forward(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    (state,) = await bench.hot.flush_state([place])
    assert state.marks == 1
    assert bench.due(place) == bench.clock.micros


async def test_asking_how_far_a_scope_is_flushed_leaves_a_living_claim_alone(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim(bucket=place.ref.bucket)
    due = bench.due(place)
    await bench.hot.flush_state([place])
    assert bench.due(place) == due
    bench.clock.move(1)
    assert await bench.claim("second", bucket=place.ref.bucket) == []


@pytest.mark.parametrize("which", ["session", "namespace"])
async def test_a_scope_that_is_to_be_compared_with_sql_is_not_said_to_be_flushed(bench: Bench, which: str) -> None:
    (space,) = await with_dirty_namespaces(bench, "n")
    await bench.flush(space)
    places = [bench.session(), space]
    through = [state.flushed_through for state in await bench.hot.flush_state(places)]
    assert ZERO not in through
    assert await bench.merging.mark_stale(space if which == "namespace" else places[0])
    session, of_space = [state.flushed_through for state in await bench.hot.flush_state(places)]
    assert session == (through[0] if which == "namespace" else ZERO)
    assert of_space == ZERO


async def test_asking_about_a_clean_scope_makes_nothing_due(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.flush(place)
    (state,) = await bench.hot.flush_state([place])
    assert (state.marks, bench.due(place)) == (0, None)
    assert state.flushed_through == bench.field(place, "r")


async def test_what_is_given_back_may_be_had_at_once(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    assert await bench.renew(place, "first", 0.0) == 1
    assert await bench.backlog.claims_of(range(BUCKETS)) == {}
    assert await bench.claim("second", bucket=place.ref.bucket) == [place.ref.member]


async def test_what_was_put_off_is_left_alone_until_then(bench: Bench) -> None:
    place = await dirty(bench)
    await bench.claim("first", bucket=place.ref.bucket)
    await bench.renew(place, "first", 5.0)
    await bench.hot.flush_state([place])
    assert bench.due(place) == bench.clock.micros + 5 * SECOND, "a flush() does not pull it forward"
    assert await bench.claim("second", bucket=place.ref.bucket, everything=True) == []
    bench.clock.move(5)
    assert await bench.claim("second", bucket=place.ref.bucket) == [place.ref.member]
