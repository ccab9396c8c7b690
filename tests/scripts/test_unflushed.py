"""The five indexes of unflushed sessions: a session is in all of them or in none, and one call lists many buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.signals import UnreadyBuckets
from sessioncache.primitives.scopes import app_id
from tests.scripts.bench import BUCKETS, Bench, drop, put

LETTERS = "aubow"


async def listed_in(bench: Bench, place: Place) -> str:
    """The indexes that a session is in."""
    return "".join([letter for letter in LETTERS if await bench.unflushed(letter, place)])


async def test_a_session_is_in_all_indexes_while_sql_lacks_its_head_and_then_in_none(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("a", "1"))
    assert await listed_in(bench, place) == LETTERS
    await bench.write(place, put("a", "2"))
    assert await listed_in(bench, place) == LETTERS
    await bench.flush(place)
    assert await listed_in(bench, place) == ""
    await bench.write(place, drop("a"))
    assert await listed_in(bench, place) == LETTERS
    await bench.hot.delete(place, b"")
    assert await listed_in(bench, place) == LETTERS
    await bench.flush(place)
    assert await listed_in(bench, place) == ""


async def test_a_session_that_is_written_again_and_again_is_entered_once(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    since = bench.ask("ZSCORE", bench.key(place, f"unflushed:o:{place.parents[96:128].decode()}"), place.ref.member)
    bench.clock.move(5)
    await bench.write(place, put("a", "1"))
    for number, letter in enumerate(LETTERS):
        index = f"unflushed:{letter}:{place.parents[32 * number : 32 * number + 32].decode()}"
        assert bench.ask("ZSCORE", bench.key(place, index), place.ref.member) == since


async def test_shared_scopes_are_in_no_index(bench: Bench) -> None:
    for place in (bench.user(), bench.app()):
        await bench.install(place)
        await bench.write(place, put("a", "1"))
    assert bench.ask("KEYS", "*:unflushed:*") == []


async def test_a_head_that_moved_on_during_its_flush_stays_in_all_indexes(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    dirt = await bench.dirt(place)
    await bench.write(place, put("a", "1"))
    await bench.acknowledge(dirt)
    assert await listed_in(bench, place) == LETTERS


async def test_a_session_of_an_older_incarnation_is_doubtful_until_it_is_revalidated(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    bench.fail_over()
    await bench.register()
    assert [one.doubtful for one in await bench.unflushed("u", place)] == [True]
    await bench.merge(place, absent=True)
    assert [one.doubtful for one in await bench.unflushed("u", place)] == [False]


# ---- many buckets in one call


async def spread(bench: Bench, number: int) -> list[Place]:
    """Sessions of so many users, in all buckets."""
    places = [bench.session("s", f"u{index}") for index in range(number)]
    for place in places:
        bench.clock.move(0.001)
        await bench.create(place)
    assert {place.ref.bucket for place in places} == set(range(BUCKETS))
    return places


async def users_of_app(bench: Bench) -> list[str]:
    """The users of all unflushed sessions of the app."""
    found = await bench.hot.unflushed("a", app_id("org", "app"), range(BUCKETS))
    return sorted(one.head.user for one in found)


async def test_all_buckets_are_listed_in_one_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    places = await spread(bench, 20)
    calls: list[Sequence[Any]] = []
    call_many = bench.link.call_many

    async def counted(script: Any, given: Any) -> Any:
        calls.append(given)
        return await call_many(script, given)

    monkeypatch.setattr(bench.link, "call_many", counted)
    assert await users_of_app(bench) == sorted(place.ref.user for place in places)
    assert [len(given) for given in calls] == [1]


@pytest.mark.parametrize("buckets_of_a_call", [1, 64])
async def test_a_reply_that_cannot_hold_all_goes_on_where_it_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, buckets_of_a_call: int
) -> None:
    monkeypatch.setattr("sessioncache.hot.unflushed._MOST", 3)
    monkeypatch.setattr("sessioncache.hot.unflushed._BUCKETS", buckets_of_a_call)
    places = await spread(bench, 20)
    assert sorted(set(await users_of_app(bench))) == sorted(place.ref.user for place in places)


async def test_buckets_that_sql_does_not_know_are_told_all_at_once(fresh: Bench) -> None:
    with pytest.raises(UnreadyBuckets) as caught:
        await fresh.hot.unflushed("o", "0" * 32, range(BUCKETS))
    assert caught.value.buckets == list(range(BUCKETS))
