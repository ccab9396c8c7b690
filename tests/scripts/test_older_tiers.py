"""R14, R17, R18: a revalidation where a tier came back older, and one of many steps."""

from __future__ import annotations

from sessioncache.hot.reconciling import Looked, reconcile
from sessioncache.primitives.revisions import encode_revision
from tests.scripts.bench import SECOND, START, Bench, drop, nothing, put
from tests.scripts.test_merging import a_user, forget, of_older_incarnation, revision_of, row

# ---- R14: what was purged, and what stays


async def test_an_entry_without_a_row_goes_where_it_was_purged_and_stays_above(bench: Bench) -> None:
    place = await a_user(bench, old="1")
    bench.clock.move(1)
    await bench.write(place, put("young", "1"))
    await bench.flush(place)
    purged, through = revision_of(bench, place, "=old"), revision_of(bench, place, "r")
    await forget(bench)
    assert await bench.merge(place, purged=purged, flushed=through) == 1
    assert await bench.values(place) == {"young": b"1"}
    assert bench.marks(place) == {b"=young"}, "SQL lacks it"


async def test_a_mark_does_not_keep_what_was_purged(bench: Bench) -> None:
    place = await a_user(bench, k="1")
    purged = revision_of(bench, place, "=k")
    await forget(bench)
    assert await bench.merge(place, purged=purged, flushed=purged) == 0
    assert await bench.values(place) == {}


async def test_what_was_never_flushed_was_not_purged_either(bench: Bench) -> None:
    place = await a_user(bench, k="1")
    purged = revision_of(bench, place, "=k")
    await forget(bench)
    assert await bench.merge(place, purged=purged, flushed=purged - 1) == 1
    assert await bench.values(place) == {"k": b"1"}


async def test_a_session_without_a_head_goes_where_it_was_purged_and_stays_above(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=True)
    birth = revision_of(bench, place, "b")
    assert await bench.merge(place, absent=True, purged=birth) == 0
    assert bench.ask("EXISTS", place.hash) == 0
    other = bench.session("other")
    await bench.create(other, put("k", "1"))
    await bench.flush(other)
    await forget(bench)
    assert await bench.merge(other, absent=True, purged=revision_of(bench, other, "b") - 1) == 2
    assert await bench.values(other) == {"k": b"1"}


async def test_a_row_that_the_hash_dropped_long_ago_is_dead_and_its_tombstone_is_written_anew(bench: Bench) -> None:
    place = await a_user(bench, k="1", gone="1")
    stored = row(bench, place, "gone")
    kept = row(bench, place, "k")
    await bench.write(place, drop("gone"))
    await bench.flush(place)
    through = revision_of(bench, place, "r")
    await forget(bench)
    assert await bench.merge(place, kept, stored, flushed=through) == 1
    assert await bench.values(place) == {"k": b"1"}
    (tombstone,) = (await bench.dirt(place)).entries
    assert (tombstone.key, tombstone.text, tombstone.revision > through) == ("gone", b"", True)
    await bench.flush(place)


async def test_all_that_sql_knows_and_what_was_purged_counts_for_what_the_hash_knows(bench: Bench) -> None:
    place = await a_user(bench, k="1")
    await bench.flush(place)
    await forget(bench)
    purged = START + 50 * SECOND
    await bench.merge(place, row(bench, place, "k"), purged=purged)
    assert revision_of(bench, place, "p") == revision_of(bench, place, "r") == purged


async def test_a_hash_of_this_incarnation_keeps_all_and_marks_what_sql_lacks(bench: Bench) -> None:
    place = await a_user(bench, k="1", l="1")
    await bench.flush(place)
    stored = row(bench, place, "l")
    assert await bench.merging.mark_stale(place)
    assert bench.ttl(place.hash) is None, "what is flagged is pinned"
    through = revision_of(bench, place, "r")
    assert await bench.merge(place, stored, purged=through, flushed=through) == 2
    assert (await bench.values(place), bench.marks(place)) == ({"k": b"1", "l": b"1"}, {b"=k", b"!"})


# ---- R18: SQL has less than was flushed


async def test_where_sql_has_forgotten_all_that_lives_is_stamped_anew_and_the_rest_is_cleared(bench: Bench) -> None:
    place = await a_user(bench, k="1", gone="1")
    stored = row(bench, place, "gone")
    await bench.flush(place)
    await bench.write(place, drop("gone"))
    await bench.flush(place)
    before = revision_of(bench, place, "r")
    await forget(bench)
    assert await bench.merge(place, stored, row(bench, place, "k"), flushed=before - 1) == 2
    stamp = revision_of(bench, place, "=k")
    assert stamp == revision_of(bench, place, "r") > before
    assert revision_of(bench, place, "c") == stamp - 1
    assert (bench.marks(place), bench.field(place, "f")) == ({b"=k", b"!"}, b"")
    assert await bench.values(place) == {"k": b"1"}


async def test_a_tombstone_that_was_purged_is_no_reason_to_stamp_anything(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.delete(place, b"")
    await bench.flush(place)
    at = revision_of(bench, place, "c")
    await forget(bench)
    assert await bench.merge(place, absent=True, purged=at) == 0
    assert revision_of(bench, place, "c") == at


# ---- large scopes


async def test_a_merge_of_many_steps_that_is_cut_short_is_begun_anew(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, *(put(f"k{number}", "1") for number in range(1_200)))
    await forget(bench)
    taken = await bench.take_merge_token(place)
    (looked,) = await bench.merging.look([taken])
    assert isinstance(looked, Looked)
    rows = [row(bench, place, f"k{number}", text=b"2", by=1) for number in range(1_200)]
    made = reconcile(place.ref.kind, looked, bench.stored(place, *rows))
    assert len(list(made.steps())) > 2
    first = bench.merging._steps(taken, looked, made)[0]
    await bench.merging._step([(taken, first)])
    bench.ask("HDEL", place.control, f"t:{place.ref.member}")
    assert await bench.merge_under(taken, nothing()) is None
    assert await bench.merge(place, *rows) == 0
    assert set((await bench.values(place)).values()) == {b"2"}


async def test_a_merge_of_a_hash_that_was_changed_since_it_was_looked_at_changes_nothing(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    taken = await bench.take_merge_token(place)
    (looked,) = await bench.merging.look([taken])
    assert isinstance(looked, Looked)
    made = reconcile(place.ref.kind, looked, nothing())
    bench.ask("HSET", place.hash, "r", encode_revision(START + SECOND))
    assert await bench.merging.carry_out([(taken, looked, made)]) == [None]
    bench.ask("HDEL", place.control, f"t:{place.ref.member}")
    await bench.merge(place, absent=True)


async def test_a_head_that_comes_from_sql_keeps_its_empty_names(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=True)
    newer = revision_of(bench, place, "u") + 9
    await bench.merge(place, row(bench, place, "k"), revision=newer, updated=newer, org="", title="")
    assert [bench.ask("HEXISTS", place.hash, name) for name in "oawst"] == [1] * 5
