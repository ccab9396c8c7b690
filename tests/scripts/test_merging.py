"""R17: a revalidation brings together what Redis still has of a scope and what SQL has."""

from __future__ import annotations

from typing import Any

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Refused, Written
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import ZERO, decode_revision, encode_revision
from sessioncache.settings import TOMBSTONE_RETENTION
from tests.scripts.bench import DELAY, IDLE, SECOND, START, Bench, drop, nothing, put


async def forget(bench: Bench) -> None:
    """Redis may have forgotten something: all that is hot is of an older incarnation."""
    bench.fail_over(bench.replid + "b")
    await bench.register()


async def a_user(bench: Bench, **values: str) -> Place:
    """A user's scope with these values, all of them dirty."""
    place = bench.user()
    await bench.install(place)
    await bench.write(place, *(put(key, text) for key, text in values.items()))
    return place


def row(bench: Bench, place: Place, key: str, *, by: int = 0, text: bytes | None = None) -> Entry:
    """SQL's row of a key: as the hot one, its revision higher by `by`, or with another text."""
    value = bench.field(place, f"={key}")
    return Entry(key, decode_revision(value[:9]) + by, value[9:] if text is None else text)


def revision_of(bench: Bench, place: Place, name: str) -> int:
    """The revision in a head field, or at the beginning of an entry."""
    return decode_revision(bench.field(place, name)[:9])


# ---- marks of an older incarnation


async def test_a_mark_of_an_older_incarnation_stays_where_sql_lacks_the_row(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    assert await bench.merge(place, absent=True) == 1
    assert await bench.values(place) == {"k": b"2"}
    assert (bench.marks(place), bench.ttl(place.hash)) == ({b"=k"}, None)


async def test_a_mark_of_an_older_incarnation_stays_where_sqls_row_is_smaller(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    before = bench.field(place, "=k")
    await forget(bench)
    assert await bench.merge(place, row(bench, place, "k", by=-1, text=b"1")) == 1
    assert bench.field(place, "=k") == before, "with the revision that it was given"


async def test_a_mark_of_an_older_incarnation_goes_where_sql_has_the_very_row(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    assert await bench.merge(place, row(bench, place, "k")) == 0
    assert await bench.values(place) == {"k": b"2"}
    assert (bench.due(place), bench.since(place), bench.ttl(place.hash)) == (None, None, IDLE)


async def test_a_mark_of_an_older_incarnation_goes_where_sql_has_a_newer_row(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    assert await bench.merge(place, row(bench, place, "k", by=9, text=b"3")) == 0
    assert await bench.values(place) == {"k": b"3"}


async def test_a_mark_of_a_field_that_redis_lost_goes(bench: Bench) -> None:
    place = await a_user(bench, k="2", lost="2")
    bench.ask("HDEL", place.hash, "=lost")
    await forget(bench)
    assert await bench.merge(place, absent=True) == 1
    assert (bench.marks(place), await bench.values(place)) == ({b"=k"}, {"k": b"2"})


async def test_a_deletion_of_an_older_incarnation_stays_dirty_where_sql_has_the_smaller_row(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    stored = row(bench, place, "k")
    await bench.write(place, drop("k"))
    await forget(bench)
    assert await bench.merge(place, stored) == 1
    assert await bench.values(place) == {}
    assert [entry.text for entry in (await bench.dirt(place)).entries] == [b""]


# ---- what SQL has


async def test_what_redis_lacks_comes_from_sql(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await forget(bench)
    assert await bench.merge(place, row(bench, place, "k"), Entry("more", START - 5, b"[1]")) == 0
    assert await bench.values(place) == {"k": b"2", "more": b"[1]"}


async def test_what_redis_has_older_comes_from_sql(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await forget(bench)
    await bench.merge(place, row(bench, place, "k", by=5, text=b'"newer"'))
    assert await bench.values(place) == {"k": b'"newer"'}


async def test_what_sql_has_deleted_since_goes(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await forget(bench)
    assert await bench.merge(place, row(bench, place, "k", by=5, text=b"")) == 0
    assert await bench.values(place) == {}
    assert bench.field(place, "=k") == b"", "SQL keeps the tombstone"


async def test_a_clean_field_that_sql_lacks_is_kept(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await forget(bench)
    await bench.merge(place, absent=True)
    assert await bench.values(place) == {"k": b"2"}


async def test_rows_that_were_cleared_stay_dead(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    bench.ask("HSET", place.hash, "c", encode_revision(START - 10))
    await forget(bench)
    await bench.merge(place, Entry("dead", START - 10, b"1"), Entry("alive", START - 9, b"1"))
    assert await bench.values(place) == {"k": b"2", "alive": b"1"}


async def test_the_scope_revision_is_at_or_above_all_that_sql_knows(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await forget(bench)
    known = START + 1_000 * SECOND
    await bench.merge(place, Entry("more", known, b"1"))
    assert revision_of(bench, place, "r") == known
    written = await bench.write(place, put("k", "3"))
    assert decode_revision(written.revision) == known + 1


async def test_keys_and_bytes_are_counted_anew(bench: Bench) -> None:
    place = await a_user(bench, k="22", gone="333")
    await bench.flush(place)
    await forget(bench)
    await bench.merge(place, row(bench, place, "gone", by=1, text=b""), Entry("more", START, b"4444"))
    assert (bench.field(place, "n"), bench.field(place, "z")) == (b"2", b"6")


# ---- written in this incarnation


async def flagged(bench: Bench, *, newer: int = 9) -> tuple[Place, Entry]:
    """A user's scope with a key that SQL refused, and SQL's row of it."""
    place = await a_user(bench, k="2")
    stored = row(bench, place, "k", by=newer, text=b'"foreign"')
    await bench.acknowledge(await bench.dirt(place), {"k": stored.revision})
    return place, stored


async def test_a_refusal_and_a_missing_field_flag_the_scope(bench: Bench) -> None:
    place, _ = await flagged(bench)
    assert bench.field(place, "y") == b"1"
    other = bench.user("other")
    await bench.install(other)
    await bench.write(other, put("k", "1"))
    dirt = await bench.dirt(other)
    bench.ask("HDEL", other.hash, "=k")
    await bench.acknowledge(dirt)
    assert bench.field(other, "y") == b"1"
    await bench.merge(other, *dirt.entries)
    assert await bench.values(other) == {"k": b"1"}


async def test_what_was_written_in_this_incarnation_and_refused_is_stamped_above_sql(bench: Bench) -> None:
    place, stored = await flagged(bench)
    assert await bench.merge(place, stored) == 2
    assert await bench.values(place) == {"k": b"2"}
    assert revision_of(bench, place, "=k") > stored.revision
    assert revision_of(bench, place, "r") >= revision_of(bench, place, "=k")
    assert bench.field(place, "y") == b""
    assert (await bench.flush(place)).left == 0


async def test_a_deletion_of_this_incarnation_that_was_refused_is_stamped_above_sql(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await bench.write(place, drop("k"))
    stored = row(bench, place, "k", by=9, text=b'"foreign"')
    await bench.acknowledge(await bench.dirt(place), {"k": stored.revision})
    assert await bench.merge(place, stored) == 2
    (entry,) = (await bench.dirt(place)).entries
    assert (entry.text, entry.revision > stored.revision) == (b"", True)
    await bench.flush(place)


async def test_a_clean_field_of_this_incarnation_that_sql_has_newer_is_taken_from_sql(bench: Bench) -> None:
    place = await a_user(bench, k="1", mine="1")
    await bench.flush(place)
    await bench.write(place, put("mine", "2"))
    bench.ask("HSET", place.hash, "y", "1")
    await bench.merge(place, row(bench, place, "k", by=9, text=b"9"), row(bench, place, "mine", by=-5, text=b"1"))
    assert await bench.values(place) == {"k": b"9", "mine": b"2"}
    assert bench.marks(place) == {b"=mine", b"!"}


async def test_a_refused_head_of_this_incarnation_is_stamped_above_sql(bench: Bench) -> None:
    place = bench.session()
    created = await bench.create(place)
    sql = decode_revision(created.revision) + 50
    await bench.acknowledge(await bench.dirt(place), head=sql)
    assert await bench.merge(place, revision=sql, updated=sql, title="foreign") == 1
    assert revision_of(bench, place, "h") > sql
    assert (bench.field(place, "b"), bench.field(place, "t")) == (created.revision, b"")
    assert (await bench.flush(place)).left == 0


async def test_a_refused_delete_of_this_incarnation_is_stamped_above_sql(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    await bench.flush(place)
    stored = row(bench, place, "k", by=70)
    await bench.delete(place, b"")
    sql = revision_of(bench, place, "r") + 50
    await bench.acknowledge(await bench.dirt(place), head=sql)
    assert await bench.merge(place, stored, revision=sql, updated=sql, deleted=False, cleared=0) == 1
    assert revision_of(bench, place, "x") == revision_of(bench, place, "c") > max(sql, stored.revision)
    await bench.flush(place)


# ---- heads, and lives of a session


async def of_older_incarnation(bench: Bench, *, flushed: bool) -> Place:
    """A session with a key, its hash of an older incarnation."""
    place = bench.session()
    await bench.create(place, put("k", "1"))
    if flushed:
        await bench.flush(place)
    await forget(bench)
    return place


async def test_an_unflushed_session_that_sql_lacks_stays_unflushed(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=False)
    assert await bench.merge(place, absent=True) == 2
    (listed,) = await bench.unflushed("b", place)
    assert (listed.head.session, listed.doubtful) == ("s", False)
    assert (await bench.flush(place)).left == 0


async def test_a_session_whose_head_sql_has_leaves_the_unflushed_ones(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=False)
    assert await bench.merge(place, row(bench, place, "k")) == 0
    assert bench.ask("KEYS", "*:unflushed:*") == []


async def test_a_newer_head_of_the_same_life_comes_from_sql_and_its_birth_stays(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=True)
    birth, newer = bench.field(place, "b"), revision_of(bench, place, "u") + 9
    await bench.merge(
        place, row(bench, place, "k"), revision=newer, updated=newer, title="renamed", message_count=7, token_total=8
    )
    assert [bench.field(place, name) for name in "tmkb"] == [b"renamed", b"7", b"8", birth]


async def test_an_older_head_of_sql_does_not_replace_the_hot_one(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=False)
    older = revision_of(bench, place, "u") - 9
    assert await bench.merge(place, row(bench, place, "k"), revision=older, updated=older, title="older") == 1
    assert (bench.marks(place), bench.field(place, "t")) == ({b"!"}, b"")


async def test_a_session_that_was_deleted_in_sql_is_deleted(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=False)
    at = revision_of(bench, place, "r") + 9
    left = await bench.merge(place, row(bench, place, "k"), revision=at, updated=at, cleared=at, deleted=True)
    assert (left, bench.marks(place), revision_of(bench, place, "x")) == (0, set(), at)
    assert (bench.field(place, "=k"), bench.field(place, "n")) == (b"", b"0")
    assert bench.ttl(place.hash) == TOMBSTONE_RETENTION


async def test_a_session_that_was_created_anew_in_sql_lives_its_new_life(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=False)
    birth = revision_of(bench, place, "r") + 9
    fresh = Entry("fresh", birth, b"1")
    left = await bench.merge(place, fresh, revision=birth, updated=birth, birth=birth, cleared=birth - 1)
    assert (left, await bench.values(place)) == (0, {"fresh": b"1"})
    assert revision_of(bench, place, "b") == birth


async def test_a_tombstone_gives_way_to_a_new_life_in_sql(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    await bench.delete(place, b"")
    await bench.flush(place)
    await forget(bench)
    birth = revision_of(bench, place, "r") + 9
    await bench.merge(
        place, Entry("k", birth, b"2"), revision=birth, updated=birth, birth=birth, cleared=birth - 1, deleted=False
    )
    assert (bench.field(place, "x"), await bench.values(place)) == (b"", {"k": b"2"})


async def test_an_unflushed_delete_is_not_undone_by_the_life_it_ended(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    stored = row(bench, place, "k")
    at = stored.revision
    alive: dict[str, Any] = {"revision": at, "updated": at, "deleted": False, "cleared": at - 1}
    await bench.delete(place, b"")
    await forget(bench)
    assert await bench.merge(place, stored, **alive) == 1
    assert bench.field(place, "x")
    assert bench.marks(place) == {b"!"}
    assert bench.field(place, "=k") == b""
    await bench.flush(place)


async def test_an_older_life_in_sql_does_not_end_the_hot_one(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    old = row(bench, place, "k")
    await bench.delete(place, b"")
    at = revision_of(bench, place, "c")
    bench.clock.move(1)
    await bench.create(place, put("k", "2"), token=b"")
    birth = bench.field(place, "b")
    await forget(bench)
    head: dict[str, Any] = {"revision": at, "updated": at, "cleared": at, "deleted": True, "birth": old.revision}
    assert await bench.merge(place, old, **head) == 2
    assert (bench.field(place, "b"), await bench.values(place)) == (birth, {"k": b"2"})


# ---- index, token


async def test_what_is_left_dirty_is_due_now_where_it_was_not_in_the_index(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    bench.ask("DEL", bench.key(place, "dirty"), bench.key(place, "since"))
    bench.clock.move(7)
    await bench.merge(place, absent=True)
    assert bench.due(place) == bench.since(place) == bench.clock.micros


async def test_what_is_left_dirty_keeps_its_date(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    bench.clock.move(7)
    await bench.merge(place, absent=True)
    assert (bench.due(place), bench.since(place)) == (START + round(DELAY * SECOND), START)


async def test_a_dirty_hash_that_had_a_ttl_is_pinned(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    bench.ask("EXPIRE", place.hash, 9)
    await forget(bench)
    await bench.merge(place, absent=True)
    assert bench.ttl(place.hash) is None


async def test_a_settled_scope_leaves_no_claim(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.claim(bucket=place.ref.bucket, everything=True)
    await forget(bench)
    await bench.merge(place, row(bench, place, "k"))
    assert bench.ask("HGET", place.control, f"c:{place.ref.member}") is None


async def test_a_revalidated_hash_is_of_this_incarnation(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    await bench.merge(place, absent=True)
    assert bench.field(place, "i") == bench.ask("HGET", place.control, "incarnation")
    assert await bench.merging.take_tokens([place]) == [None]


async def test_a_merge_needs_the_token_under_which_sql_was_read(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    taken = await bench.take_merge_token(place)
    before = bench.ask("HGETALL", place.hash)
    bench.ask("HDEL", place.control, f"t:{place.ref.member}")
    assert await bench.merge_under(taken, nothing()) is None
    assert bench.ask("HGETALL", place.hash) == before
    await bench.merge(place, absent=True)


async def test_a_merge_consumes_its_token(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    taken = await bench.take_merge_token(place)
    assert await bench.merge_under(taken, nothing()) == 1
    assert await bench.merge_under(taken, nothing()) is None


async def test_a_second_process_waits_for_the_revalidation_of_the_first(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await forget(bench)
    await bench.take_merge_token(place)
    (waits,) = await bench.merging.take_tokens([place])
    assert isinstance(waits, float)
    bench.ask("HDEL", place.control, f"t:{place.ref.member}")
    await bench.merge(place, absent=True)


async def test_a_scope_that_was_evicted_meanwhile_is_not_brought_back_by_a_merge(bench: Bench) -> None:
    place = await a_user(bench, k="2")
    await bench.flush(place)
    await forget(bench)
    taken = await bench.take_merge_token(place)
    bench.ask("DEL", place.hash)
    assert await bench.merge_under(taken, nothing()) is None
    assert bench.ask("EXISTS", place.hash) == 0


async def test_a_token_for_a_revalidation_names_whose_scope_it_is(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=True)
    taken = await bench.take_merge_token(bench.backlog.place(place.ref.bucket, place.ref.member))
    assert (taken.place.parents, taken.place.ref.session) == (place.parents, "s")
    await bench.merge_under(taken, nothing())


async def test_a_scope_of_more_fields_than_lua_unpacks_is_merged_whole(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, *(put(f"k{number}", "1") for number in range(9_000)))
    await forget(bench)
    rows = [row(bench, place, f"k{number}", text=b"2", by=1) for number in range(4_500)]
    assert await bench.merge(place, *rows) == 4_500
    assert (bench.field(place, "n"), bench.field(place, "z")) == (b"9000", b"9000")


async def test_the_revision_of_the_values_is_not_below_what_a_merge_brought(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=True)
    newer = row(bench, place, "k", by=9, text=b"2")
    await bench.merge(place, newer, revision=newer.revision, updated=newer.revision, values_revision=newer.revision)
    assert bench.field(place, "v") >= bench.field(place, "=k")[:9] > ZERO


async def test_whoever_relies_on_values_that_a_merge_replaced_is_refused(bench: Bench) -> None:
    place = await of_older_incarnation(bench, flushed=True)
    await bench.merge(place, row(bench, place, "k"))
    await bench.write(place, put("mine", "1"))
    await forget(bench)
    seen, birth = bench.field(place, "v"), bench.field(place, "b")
    older = revision_of(bench, place, "u") - 1
    assert await bench.merge(place, row(bench, place, "k", by=5, text=b"9"), revision=older, updated=older) == 2
    refused = await bench.try_write(place, put("k", "10"), birth=birth, if_revision=seen)
    assert isinstance(refused, Refused)
    assert refused.why == "stale"


async def test_whoever_relies_on_a_shared_scopes_values_that_a_merge_replaced_is_refused(bench: Bench) -> None:
    place = await a_user(bench, k="1")
    await bench.flush(place)
    seen = bench.field(place, "v")
    await forget(bench)
    await bench.merge(place, row(bench, place, "k", by=5, text=b"9"))
    assert isinstance(await bench.try_write(place, put("k", "10"), if_revision=seen), Refused)


async def test_whoever_relies_on_values_that_sql_has_cleared_is_refused(bench: Bench) -> None:
    place = await a_user(bench, k="1")
    await bench.flush(place)
    seen = bench.field(place, "v")
    await forget(bench)
    erased = revision_of(bench, place, "=k") + 5
    await bench.merge(place, cleared=erased, revision=erased)
    assert await bench.values(place) == {}
    assert isinstance(await bench.try_write(place, put("k", "10"), if_revision=seen), Refused)


async def test_whoever_relies_on_values_that_a_merge_left_alone_may_write(bench: Bench) -> None:
    place = await a_user(bench, k="1")
    seen = bench.field(place, "v")
    await forget(bench)
    await bench.merge(place, row(bench, place, "k"))
    await bench.write(place, put("other", "1"))
    assert seen < bench.field(place, "v")
    other = await of_older_incarnation(bench, flushed=False)
    seen = bench.field(other, "v")
    await bench.merge(other, absent=True)
    assert isinstance(await bench.try_write(other, put("k", "10"), if_revision=seen), Written)
