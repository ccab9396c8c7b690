"""R6, R7, R8: an acknowledgement is by version, re-arms what is left, and never says more than SQL holds."""

from __future__ import annotations

from dataclasses import replace

from sessioncache.hot.backlog import Counters
from sessioncache.primitives.entries import Dirt
from sessioncache.primitives.revisions import ZERO, decode_revision
from tests.scripts.bench import BUCKETS, DELAY, SECOND, START, Bench, drop, put

DELAY_US = round(DELAY * SECOND)


async def moved_on(bench: Bench) -> Dirt:
    """The dirt of a session with keys a and b, of which a is written again three seconds after the reading."""
    place = bench.session()
    await bench.create(place, put("a", "1"), put("b", "1"))
    bench.clock.move(2)
    dirt = await bench.dirt(place)
    bench.clock.move(3)
    await bench.write(place, put("a", "2"))
    return dirt


async def test_dirt_is_read_with_the_scope_revision_and_the_incarnation(bench: Bench) -> None:
    place = bench.session()
    created = await bench.create(place, put("a", "1"))
    dirt = await bench.dirt(place)
    assert dirt.head.revision == decode_revision(created.revision)
    assert dirt.incarnation.encode() == created.parts[0].incarnation
    assert [(entry.key, entry.text) for entry in dirt.entries] == [("a", b"1")]


async def test_after_everything_was_committed_nothing_is_dirty(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    assert (await bench.flush(place)).left == 0
    assert (bench.marks(place), bench.due(place), bench.since(place)) == (set(), None, None)


async def test_a_field_that_moved_on_stays_dirty(bench: Bench) -> None:
    done = await bench.acknowledge(await moved_on(bench))
    assert (done.left, done.refused) == (2, [])
    assert bench.marks(bench.session()) == {b"=a", b"!"}


async def test_what_is_left_is_due_after_the_flush_delay_and_not_after_the_lease(bench: Bench) -> None:
    await bench.acknowledge(await moved_on(bench))
    assert bench.due(bench.session()) == bench.clock.micros + DELAY_US


async def test_what_is_left_has_been_dirty_since_the_reading(bench: Bench) -> None:
    await bench.acknowledge(await moved_on(bench))
    assert bench.since(bench.session()) == START + 2 * SECOND


async def test_dirt_is_dated_from_the_first_write_since_the_last_flush(bench: Bench) -> None:
    await bench.create(bench.session())
    bench.clock.move(2)
    await bench.write(bench.session(), put("a", "1"))
    assert bench.since(bench.session()) == START


async def test_a_later_write_does_not_put_the_flush_off(bench: Bench) -> None:
    await bench.create(bench.session())
    bench.clock.move(0.5)
    await bench.write(bench.session(), put("a", "1"))
    assert bench.due(bench.session()) == START + DELAY_US


async def test_flushed_through_is_the_revision_that_was_read_and_not_what_came_later(bench: Bench) -> None:
    dirt = await moved_on(bench)
    await bench.acknowledge(dirt)
    assert decode_revision(bench.field(bench.session(), "f")) == dirt.head.revision


async def test_flushed_through_is_never_lowered(bench: Bench) -> None:
    dirt = await moved_on(bench)
    await bench.flush(bench.session())
    through = bench.field(bench.session(), "f")
    await bench.acknowledge(dirt)
    assert bench.field(bench.session(), "f") == through > ZERO


async def test_flushed_through_does_not_pass_a_row_that_sql_refused(bench: Bench) -> None:
    place = bench.session()
    created = await bench.create(place, put("a", "1"), put("b", "1"))
    done = await bench.acknowledge(await bench.dirt(place), {"a": decode_revision(created.revision) + 9})
    assert (done.refused, done.rows, bench.field(place, "f")) == ([b"=a"], 1, b"")
    assert bench.marks(place) == {b"=a"}


async def test_flushed_through_does_not_pass_a_head_that_sql_refused(bench: Bench) -> None:
    place = bench.session()
    created = await bench.create(place, put("a", "1"))
    done = await bench.acknowledge(await bench.dirt(place), head=decode_revision(created.revision) + 9)
    assert (done.refused, bench.field(place, "f"), bench.marks(place)) == ([b"!"], b"", {b"!"})


async def test_a_refused_row_that_the_hot_tier_has_left_behind_is_settled_by_a_later_flush(bench: Bench) -> None:
    dirt = await moved_on(bench)
    done = await bench.acknowledge(dirt, {"a": dirt.head.revision + 1})
    assert done.refused == []
    assert bench.marks(bench.session()) == {b"=a", b"!"}


async def test_a_head_that_moved_on_stays_dirty_and_listed(bench: Bench) -> None:
    place = bench.session()
    await bench.acknowledge(await moved_on(bench))
    for letter in "aubow":
        (listed,) = await bench.unflushed(letter, place)
        assert (listed.head.session, listed.scope_id) == ("s", place.ref.id)


async def test_a_session_is_listed_as_unflushed_from_its_first_dirt_to_its_acknowledgement(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    assert len(bench.ask("KEYS", "*:unflushed:*")) == 5
    await bench.flush(place)
    assert bench.ask("KEYS", "*:unflushed:*") == []
    await bench.write(place, put("a", "1"))
    assert len(bench.ask("KEYS", "*:unflushed:*")) == 5


async def test_an_acknowledgement_of_another_incarnation_changes_nothing(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    dirt = await bench.dirt(place)
    before = bench.ask("HGETALL", place.hash)
    assert await bench.try_acknowledge(replace(dirt, incarnation="another")) is None
    assert (bench.ask("HGETALL", place.hash), bench.marks(place)) == (before, {b"=a", b"!"})


async def test_a_mark_without_a_field_goes_with_the_acknowledgement(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    bench.ask("SADD", bench.key(place, f"d:{place.ref.member}"), "=ghost")
    dirt = await bench.dirt(place)
    assert dirt.phantoms == [b"=ghost"]
    assert (await bench.acknowledge(dirt)).left == 0


async def test_a_phantom_that_was_written_meanwhile_stays_dirty(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    bench.ask("SADD", bench.key(place, f"d:{place.ref.member}"), "=ghost")
    dirt = await bench.dirt(place)
    await bench.write(place, put("ghost", "1"))
    await bench.acknowledge(dirt)
    assert bench.marks(place) == {b"=ghost"}


async def test_a_living_field_that_is_missing_after_the_commit_is_told(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"), put("b", "1"))
    dirt = await bench.dirt(place)
    lost = bench.field(place, "=a")
    bench.ask("HDEL", place.hash, "=a")
    assert (await bench.acknowledge(dirt)).refused == [b"?=a"]
    bench.ask("HSET", place.hash, "=a", lost)


async def test_a_replayed_acknowledgement_of_a_deleted_key_finds_nothing_amiss(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    await bench.write(place, drop("a"))
    dirt = await bench.dirt(place)
    await bench.acknowledge(dirt)
    assert (await bench.acknowledge(dirt)).refused == []


async def test_an_acknowledgement_that_a_clear_overtook_finds_nothing_amiss(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    dirt = await bench.dirt(place)
    await bench.delete(place, b"")
    assert (await bench.acknowledge(dirt)).refused == []
    assert b"!" in bench.marks(place)
    assert (await bench.flush(place)).left == 0


async def test_rows_are_counted_with_their_lag_in_quarter_octaves_of_milliseconds(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"), put("b", "1"))
    bench.clock.move(1.024)
    await bench.flush(place)
    assert await bench.backlog.counters(range(BUCKETS)) == Counters(2, {40: 2})


async def test_a_lag_is_never_negative(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    bench.clock.move(-5)
    await bench.flush(place)
    assert await bench.backlog.counters(range(BUCKETS)) == Counters(1, {0: 1})


async def test_dirt_of_a_hash_that_was_evicted_leaves_no_marks(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    await bench.claim(bucket=place.ref.bucket, everything=True)
    bench.ask("DEL", place.hash)
    assert await bench.backlog.read_dirt([(place.ref.bucket, place.ref.member)]) == [None]
    assert (bench.marks(place), bench.due(place), bench.since(place)) == (set(), None, None)


async def test_a_scope_of_more_fields_than_lua_unpacks_is_flushed_whole(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, *(put(f"k{number}", "1") for number in range(9_000)))
    dirt = await bench.dirt(place)
    assert len(dirt.entries) == 9_000
    assert (await bench.acknowledge(dirt)).left == 0


async def test_as_many_refused_rows_as_a_scope_has_are_all_told(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, *(put(f"k{number}", "1") for number in range(9_000)))
    dirt = await bench.dirt(place)
    done = await bench.acknowledge(dirt, {entry.key: entry.revision + 1 for entry in dirt.entries})
    assert (done.left, len(done.refused)) == (9_000, 9_000)
