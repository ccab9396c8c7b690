"""R17: what Redis still has of a scope and what SQL has are brought together, and nothing newer is overwritten."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Refused, Wanted
from sessioncache.hot.reconciling import Looked, reconcile
from sessioncache.hot.signals import Gone, Need, Unready
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import decode_revision, encode_revision
from tests.scripts.bench import IDLE, SECOND, Bench, put


async def left_from_before(bench: Bench) -> tuple[Place, int]:
    """A user's scope with one mark, of an older incarnation; the revision of its key ``k``."""
    place = bench.user()
    await bench.install(place)
    written = await bench.write(place, put("k", '"hot"'))
    bench.fail_over()
    await bench.register()
    return place, decode_revision(written.revision)


async def refused_by_sql(bench: Bench) -> tuple[Place, int]:
    """A user's scope written in this incarnation, of which SQL refused ``k``; the greater revision that SQL has."""
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("k", '"hot"'))
    dirt = await bench.dirt(place)
    newer = dirt.entries[0].revision + SECOND
    assert (await bench.acknowledge(dirt, {"k": newer})).refused == [b"=k"]
    return place, newer


async def test_a_mark_of_an_older_incarnation_stays_where_sql_is_older(bench: Bench) -> None:
    place, revision = await left_from_before(bench)
    assert await bench.merge(place, Entry("k", revision - 1, b'"sql"')) == 1
    assert bench.marks(place) == {b"=k"}
    assert await bench.values(place) == {"k": b'"hot"'}


async def test_a_newer_row_of_sql_replaces_what_redis_has_and_its_mark_goes(bench: Bench) -> None:
    place, revision = await left_from_before(bench)
    assert await bench.merge(place, Entry("k", revision + 1, b'"sql"')) == 0
    assert bench.marks(place) == set()
    assert await bench.values(place) == {"k": b'"sql"'}


async def test_a_letter_goes_with_the_mark_that_sql_has_settled(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    written = await bench.write(place, put("k", '"poison"'))
    await bench.refuse(place, "k")
    bench.fail_over()
    await bench.register()
    await bench.merge(place, Entry("k", decode_revision(written.revision) + 1, b""))
    assert bench.marks(place) == set()
    assert not bench.ask("EXISTS", bench.key(place, "dead"))


async def test_letters_go_with_the_marks_of_a_scope_that_redis_lost(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("k", '"poison"'))
    await bench.refuse(place, "k")
    await bench.write(place, put("l", "1"))
    bench.ask("DEL", place.hash)
    assert await bench.backlog.read_dirt([(place.ref.bucket, place.ref.member)]) == [None]
    assert not bench.ask("EXISTS", bench.key(place, "dead"))


async def test_what_sql_refused_is_stamped_above_it_and_flushed(bench: Bench) -> None:
    place, newer = await refused_by_sql(bench)
    assert await bench.merge(place, Entry("k", newer, b'"sql"')) == 2
    dirt = await bench.dirt(place)
    assert [(entry.key, entry.text) for entry in dirt.entries] == [("k", b'"hot"')]
    assert dirt.entries[0].revision > newer
    assert dirt.head.revision >= dirt.entries[0].revision
    assert (await bench.acknowledge(dirt)).left == 0


async def test_a_flagged_scope_is_used_by_nobody_before_it_is_settled(bench: Bench) -> None:
    place, newer = await refused_by_sql(bench)
    for call in (bench.read(place), bench.write(place, put("l", "1"))):
        with pytest.raises(Unready) as why:
            await call
        assert why.value.need is Need.REVALIDATE
    (found,) = await bench.backlog.read_dirt([(place.ref.bucket, place.ref.member)])
    assert isinstance(found, Unready)
    await bench.merge(place, Entry("k", newer, b'"sql"'))
    assert await bench.values(place) == {"k": b'"hot"'}


async def test_a_merge_whose_token_is_lost_changes_nothing(bench: Bench) -> None:
    place, revision = await left_from_before(bench)
    taken = await bench.take_merge_token(place)
    stored = bench.stored(place, Entry("k", revision + 1, b'"sql"'))
    (looked,) = await bench.merging.look([taken])
    assert isinstance(looked, Looked)
    made = reconcile(place.ref.kind, looked, stored)
    bench.ask("HDEL", place.control, f"t:{place.ref.member}")
    before = bench.ask("HGETALL", place.hash)
    assert await bench.merging.carry_out([(taken, looked, made)]) == [None]
    assert await bench.merge_under(taken, stored) is None
    assert bench.ask("HGETALL", place.hash) == before


async def test_after_a_merge_the_next_write_is_above_what_sql_knows(bench: Bench) -> None:
    place, revision = await left_from_before(bench)
    await bench.merge(place, Entry("gone", revision + 60 * SECOND, b""))
    written = await bench.write(place, put("gone", "1"))
    assert decode_revision(written.revision) > revision + 60 * SECOND


async def test_a_newer_life_in_sql_ends_the_older_one(bench: Bench) -> None:
    place = bench.session()
    old = (await bench.create(place, put("k", '"old"'))).revision
    bench.fail_over()
    await bench.register()
    birth = decode_revision(old) + SECOND
    head: dict[str, Any] = {
        "birth": birth,
        "cleared": birth - 1,
        "revision": birth,
        "updated": birth,
        "values_revision": birth,
    }
    await bench.merge(place, Entry("k", birth, b'"new"'), **head)
    with pytest.raises(Gone):
        await bench.read(place, birth=old)
    assert (await bench.read(place, birth=encode_revision(birth))).entries["k"][9:] == b'"new"'


async def test_whoever_holds_a_scope_that_was_merged_in_the_same_incarnation_reads_it_again(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    written = await bench.write(place, put("k", '"hot"'), put("lost", '"hot"'))
    await bench.acknowledge(await bench.dirt(place))
    plan = bench.hot.plan([Wanted(place)])
    (before,) = await bench.hot.read_whole(plan)
    assert await bench.hot.look(plan, [before.version]) == [None]
    bench.ask("HDEL", place.hash, "=lost")
    await bench.merging.mark_stale(place, written.revision)
    await bench.merge(place, Entry("lost", decode_revision(written.revision), b'"hot"'))
    (after,) = await bench.hot.look(plan, [before.version])
    assert after is not None
    assert set(after.entries) == {"k", "lost"}


async def test_a_scope_that_was_merged_and_evicted_is_another_than_it_was_before(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    written = await bench.write(place, put("k", '"hot"'), put("lost", '"hot"'))
    await bench.acknowledge(await bench.dirt(place))
    bench.ask("HDEL", place.hash, "=lost")
    plan = bench.hot.plan([Wanted(place)])
    (before,) = await bench.hot.read_whole(plan)
    await bench.merging.mark_stale(place, written.revision)
    revision = decode_revision(written.revision)
    rows = [Entry(key, revision, b'"hot"') for key in ("k", "lost")]
    await bench.merge(place, *rows)
    assert bench.ttl(place.hash) is None, "SQL has to know of it before it can be evicted"
    dirt = await bench.dirt(place)
    assert (dirt.head.revision > revision, dirt.entries) == (True, [])
    await bench.acknowledge(dirt)
    assert bench.ttl(place.hash) == IDLE
    bench.ask("DEL", place.hash)
    await bench.install(place, rows, known=dirt.head.revision)
    (after,) = await bench.hot.look(plan, [before.version])
    assert after is not None
    assert set(after.entries) == {"k", "lost"}
    refused = await bench.try_write(place, put("k", "1"), if_revision=written.revision)
    assert isinstance(refused, Refused), "at that revision one was missing"


async def test_what_sql_has_yet_to_know_of_a_merge_it_is_told_under_the_next_incarnation(bench: Bench) -> None:
    place = bench.session()
    written = await bench.create(place, put("k", "1"))
    await bench.flush(place)
    revision, stored = decode_revision(written.revision), bench.stored(place, row_of(bench, place, "k"))
    await bench.merging.mark_stale(place, written.revision)
    await bench.merge_under(await bench.take_merge_token(place), stored)
    await bench.forget()
    assert await bench.merge_under(await bench.take_merge_token(place), stored) == 1
    dirt = await bench.dirt(place)
    assert dirt.head.revision > revision
    assert (await bench.acknowledge(dirt)).left == 0
    await bench.forget()
    assert (
        await bench.merge_under(await bench.take_merge_token(place), bench.stored(place, row_of(bench, place, "k")))
        == 0
    )


async def test_a_merge_leaves_nothing_in_the_control_hash(bench: Bench) -> None:
    place = bench.session()
    written = await bench.create(place, put("k", "1"))
    await bench.flush(place)
    await bench.merging.mark_stale(place, written.revision)
    await bench.merge(place, row_of(bench, place, "k"))
    await bench.flush(place)
    assert not [name for name in dict(bench.ask("HGETALL", place.control)) if place.ref.member.encode() in name]


def row_of(bench: Bench, place: Place, key: str) -> Entry:
    """What SQL has of a key that was flushed."""
    value = bench.field(place, f"={key}")
    return Entry(key, decode_revision(value[:9]), value[9:])
