"""R13, R14: a session that is not hot is deleted under the token under which SQL showed it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sessioncache.hot.client import Argument, Reply
from sessioncache.hot.layout import Place
from sessioncache.hot.scripts import Script
from sessioncache.hot.signals import Gone, TokenLost
from sessioncache.primitives.entries import Entry, Head, StoredScope
from sessioncache.primitives.revisions import decode_revision
from tests.scripts.bench import SECOND, START, Bench

KNOWN = START + 100 * SECOND
Calls = Sequence[tuple[Sequence[bytes], Sequence[Argument]]]


def in_sql(place: Place, *, known: int = KNOWN) -> StoredScope:
    """What SQL is said to have of a session, its clock ahead of that of Redis."""
    ref = place.ref
    head = Head(ref.org, ref.app, ref.user, ref.session, known - 5, birth=known - 9, cleared=known - 10, title="told")
    return StoredScope(head, [Entry("k", known, b"1")], known)


async def test_a_cold_session_gets_a_tombstone_above_all_that_sql_knows(bench: Bench) -> None:
    place = bench.session()
    existed, written = await bench.bury(place, await bench.take_token(place), in_sql(place))
    assert (existed, decode_revision(written.revision)) == (True, KNOWN + 1)
    dirt = await bench.dirt(place)
    assert (dirt.head.deleted, dirt.head.cleared, dirt.head.birth) == (True, KNOWN + 1, KNOWN - 9)
    assert (dirt.head.session, dirt.head.title, dirt.entries) == ("s", "told", [])
    with pytest.raises(Gone):
        await bench.read(place)


async def test_a_buried_session_is_pinned_and_listed_until_it_is_flushed(bench: Bench) -> None:
    place = bench.session()
    await bench.bury(place, await bench.take_token(place), in_sql(place))
    assert (bench.marks(place), bench.ttl(place.hash)) == ({b"!"}, None)
    (listed,) = await bench.unflushed("u", place)
    assert (listed.head.session, listed.head.deleted) == ("s", True)
    assert (await bench.flush(place)).left == 0
    assert bench.ttl(place.hash) is not None


async def test_nothing_is_buried_without_the_token(bench: Bench) -> None:
    place = bench.session()
    token = await bench.take_token(place)
    bench.ask("HDEL", place.control, f"t:{place.ref.member}")
    with pytest.raises(TokenLost):
        await bench.bury(place, token, in_sql(place))
    assert bench.ask("EXISTS", place.hash) == 0


async def test_a_burial_consumes_the_token(bench: Bench) -> None:
    place = bench.session()
    token = await bench.take_token(place)
    await bench.bury(place, token, in_sql(place))
    await bench.flush(place)
    bench.ask("DEL", place.hash)
    with pytest.raises(TokenLost):
        await bench.bury(place, token, in_sql(place))


async def test_a_session_created_meanwhile_under_the_id_is_deleted_as_what_it_is(bench: Bench) -> None:
    place = bench.session()
    token = await bench.take_token(place)
    created = await bench.create(place)
    existed, _ = await bench.bury(place, token, in_sql(place))
    assert (existed, bench.field(place, "b"), bench.field(place, "t")) == (True, created.revision, b"")


async def test_a_session_that_became_hot_and_clean_meanwhile_is_deleted_as_it_is(bench: Bench) -> None:
    place = bench.session()
    token = await bench.take_token(place)
    await bench.install(place, token=token, known=KNOWN, birth=KNOWN - 9)
    existed, written = await bench.bury(place, token, in_sql(place))
    assert (existed, decode_revision(written.revision)) == (True, KNOWN + 1)


async def test_a_cold_session_that_has_been_in_use_since_is_kept(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    stored = bench.stored(place)
    await bench.flush(place)
    bench.ask("DEL", place.hash)
    used = stored.head.updated
    kept = await bench.hot.bury(place, await bench.take_token(place), stored, unused_since=used - 1)
    assert (kept.written, bench.ask("EXISTS", place.hash)) == (None, 0)
    assert (await bench.hot.bury(place, await bench.take_token(place), stored, unused_since=used)).existed


async def test_a_new_life_after_a_burial_is_above_it(bench: Bench) -> None:
    place = bench.session()
    await bench.bury(place, await bench.take_token(place), in_sql(place))
    created = await bench.create(place, token=b"")
    assert decode_revision(created.revision) == KNOWN + 2


# ---- listing what SQL does not have yet


async def made(bench: Bench, number: int, *, apart: float = 0.001) -> list[Place]:
    """Sessions of one user, each created a little later than the one before."""
    places = [bench.session(f"s{index}") for index in range(number)]
    for place in places:
        bench.clock.move(apart)
        await bench.create(place)
    return places


async def listed(bench: Bench, places: list[Place]) -> list[str]:
    """The user's unflushed sessions."""
    return sorted({one.head.session for one in await bench.unflushed("u", places[0])})


async def test_all_pages_of_unflushed_sessions_are_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessioncache.hot.unflushed._MOST", 3)
    places = await made(bench, 10)
    assert await listed(bench, places) == sorted(place.ref.session for place in places)


async def test_no_session_is_missed_while_others_are_flushed_between_two_pages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessioncache.hot.unflushed._MOST", 3)
    places = await made(bench, 10)
    call = bench.link.call_many
    seen: list[int] = []

    async def flush_one_in_between(script: Script, calls: Calls) -> list[Reply]:
        replies = await call(script, calls)
        if script.name == "unflushed":
            monkeypatch.setattr(bench.link, "call_many", call)
            await bench.flush(places[len(seen)])
            seen.append(1)
            monkeypatch.setattr(bench.link, "call_many", flush_one_in_between)
        return replies

    monkeypatch.setattr(bench.link, "call_many", flush_one_in_between)
    found = await listed(bench, places)
    assert len(seen) > 3
    assert set(found) >= {place.ref.session for place in places[len(seen) :]}


async def test_sessions_of_one_instant_are_listed_beside_each_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessioncache.hot.unflushed._MOST", 3)
    early = await made(bench, 2)
    bench.clock.move(1)
    together = [bench.session(f"t{index}") for index in range(2)]
    for place in together:
        await bench.create(place)
    late = await made_more(bench, 4)
    assert await listed(bench, early) == sorted(p.ref.session for p in [*early, *together, *late])


async def made_more(bench: Bench, number: int) -> list[Place]:
    """Further sessions, later."""
    places = [bench.session(f"u{index}") for index in range(number)]
    for place in places:
        bench.clock.move(0.001)
        await bench.create(place)
    return places


async def test_an_unflushed_session_that_redis_lost_is_not_listed(bench: Bench) -> None:
    places = await made(bench, 2)
    bench.ask("DEL", places[0].hash)
    for letter in "auow":
        assert [one.head.session for one in await bench.unflushed(letter, places[0])] == ["s1"]
    bench.raw.flushall()
