"""R17, R18: flags, stamping anew, turns, and what all processes share about how much is dirty."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Layout
from sessioncache.primitives.revisions import ZERO, decode_revision
from tests.scripts.bench import Bench, drop, put
from tests.scripts.spaces import load, write

HOUR = 3_600.0


# ---- flags


async def test_a_clean_scope_as_it_was_found_is_flagged(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    assert await bench.merging.mark_stale(place, bench.field(place, "r"))
    assert bench.field(place, "y") == b"1"


async def test_a_scope_that_was_written_since_is_not_flagged(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    found = bench.field(place, "r")
    await bench.write(place, put("k", "1"))
    await bench.flush(place)
    assert not await bench.merging.mark_stale(place, found)
    assert bench.field(place, "y") == b""


async def test_a_dirty_scope_is_not_flagged(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("k", "1"))
    assert not await bench.merging.mark_stale(place, bench.field(place, "r"))


async def test_an_absent_scope_stays_absent(bench: Bench) -> None:
    place = bench.user()
    assert not await bench.merging.mark_stale(place, ZERO)
    assert bench.ask("EXISTS", place.hash) == 0


# ---- stamping anew


async def test_all_that_lives_is_stamped_above_the_rest_marked_and_pinned(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"), put("b", "1"), put("gone", "1"))
    await bench.write(place, drop("gone"))
    await bench.flush(place)
    before = bench.field(place, "r")
    bench.clock.move(9)
    await bench.forget()
    assert await bench.stamp(place) == 3
    assert (bench.marks(place), bench.ttl(place.hash)) == ({b"=a", b"=b", b"!"}, None)
    assert bench.due(place) == bench.since(place) == bench.clock.micros
    stamp = bench.field(place, "r")
    assert (bench.field(place, "=a"), bench.field(place, "=b"), stamp > before) == (stamp + b"1", stamp + b"1", True)
    assert decode_revision(bench.field(place, "c")) == decode_revision(stamp) - 1, "the rest of SQL is cleared"
    assert (await bench.flush(place)).rows == 2
    assert await bench.values(place) == {"a": b"1", "b": b"1"}


async def test_what_was_flushed_before_is_no_evidence_any_more(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    await bench.flush(place)
    await bench.forget()
    await bench.stamp(place)
    assert [bench.field(place, name) for name in "fy"] == [b"", b""]


async def test_a_tombstone_that_is_stamped_is_flushed_again(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.delete(place, b"")
    await bench.flush(place)
    await bench.forget()
    assert await bench.stamp(place) == 1
    head = (await bench.dirt(place)).head
    assert (head.deleted, head.cleared) == (True, head.revision)


async def test_a_key_that_was_deleted_and_is_not_flushed_yet_is_cleared(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    deleted = (await bench.write(place, drop("a"))).revision
    await bench.forget()
    assert await bench.stamp(place) == 1
    dirt = await bench.dirt(place)
    assert (dirt.entries, dirt.head.cleared >= decode_revision(deleted)) == ([], True)
    assert (await bench.flush(place)).left == 0


async def test_an_empty_namespace_tells_that_the_rest_is_cleared_too(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    await load(bench, space)
    await write(bench, space, put("k", "1"))
    await write(bench, space, drop("k"))
    await bench.flush(session)
    await bench.flush(space)
    await bench.forget()
    await bench.stamp(session)
    await bench.flush(session)
    assert await bench.stamp(space) == 1
    dirt = await bench.dirt(space)
    assert (dirt.entries, dirt.namespace_cleared) == ([], dirt.namespace_revision - 1)
    assert (await bench.flush(space)).left == 0


# ---- turns


async def test_one_of_many_has_the_turn_until_it_is_over(bench: Bench) -> None:
    assert await bench.backlog.take_turn("janitor", 60)
    bench.clock.move(59)
    assert not await bench.backlog.take_turn("janitor", 60)
    bench.clock.move(1)
    assert await bench.backlog.take_turn("janitor", 60)


async def test_turns_of_different_names_are_apart(bench: Bench) -> None:
    assert await bench.backlog.take_turn("a", 60)
    assert await bench.backlog.take_turn("b", 60)


async def test_a_clock_that_is_set_back_does_not_put_a_turn_off(bench: Bench) -> None:
    await bench.backlog.take_turn("janitor", 60)
    bench.clock.move(-HOUR)
    assert await bench.backlog.take_turn("janitor", 60)


# ---- how much is dirty


async def test_one_process_measures_and_the_others_read_it(bench: Bench) -> None:
    first, second = [await bench.backlog.pressure(1) for _ in range(2)]
    assert (first.measure, second.measure) == (True, False)
    noted = await bench.backlog.pressure(1, dirty=7, oldest=5)
    assert (noted.dirty, noted.oldest, noted.now, noted.measure) == (7, 5, bench.clock.micros, False)
    seen = await bench.backlog.pressure(1)
    assert (seen.dirty, seen.oldest, seen.measure) == (7, 5, False)


async def test_a_measurement_is_good_for_a_while(bench: Bench) -> None:
    await bench.backlog.pressure(1)
    await bench.backlog.pressure(1, dirty=7, oldest=5)
    bench.clock.move(1)
    assert not (await bench.backlog.pressure(1)).measure
    bench.clock.move(5)
    assert (await bench.backlog.pressure(1)).measure


async def test_another_takes_the_turn_of_one_that_died_measuring(bench: Bench) -> None:
    await bench.backlog.pressure(1)
    bench.clock.move(5)
    assert not (await bench.backlog.pressure(1)).measure
    bench.clock.move(0.1)
    assert (await bench.backlog.pressure(1)).measure


@pytest.mark.parametrize("noted", [True, False])
async def test_a_clock_that_is_set_back_does_not_make_a_measurement_last(bench: Bench, noted: bool) -> None:
    await bench.backlog.pressure(1)
    if noted:
        await bench.backlog.pressure(1, dirty=7, oldest=5)
    bench.clock.move(-HOUR)
    assert (await bench.backlog.pressure(1)).measure


# ---- the record


async def test_the_first_who_sets_redis_up_is_who_the_others_follow(bench: Bench) -> None:
    assert await bench.incarnations.read_record() == {}
    first = await bench.incarnations.write_record({"buckets": "2", "id": "one"})
    second = await bench.incarnations.write_record({"buckets": "3", "id": "two", "more": "x"})
    assert first == second == await bench.incarnations.read_record() == {"buckets": "2", "id": "one"}
    assert bench.ask("EXISTS", Layout("t", 2).record) == 1
