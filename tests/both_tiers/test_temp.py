"""R5, R16: temp: keys never leave Redis, and belong to one life of their session."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import ANY, Part, Refused, Wanted, Written
from sessioncache.primitives.revisions import encode_revision
from sessioncache.testing import InMemorySessionCache
from tests.helpers import Urls, drain, fetch
from tests.scripts.bench import SECOND, START, TEMP, Bench, put

SECRET = "told to nobody"


async def test_temp_values_never_reach_sql(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "temp:one": SECRET})
    await made.update({"b": 2, "temp:two": SECRET})
    await made.append("temp:list", SECRET)
    await drain(urls)
    await made.flush(60)
    assert await made.get("temp:two") == SECRET
    tables = [name for (name,) in fetch(urls.database, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = [row for table in tables for row in fetch(urls.database, f"SELECT * FROM {table}")]
    assert len(rows) > 2
    assert [row for row in rows if SECRET in str(row) or "temp:" in str(row)] == []


async def test_temp_keys_of_an_earlier_life_are_not_met_by_a_write(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    old = encode_revision(START - 1)
    bench.ask("HSET", place.temp, "b", old, "r", old, "n", "1", "z", "1", "=old", old + b"1")
    bench.ask("EXPIRE", place.temp, int(TEMP))
    await bench.write_parts([Part(place, [], birth), Part(place, [put("new", "2")], temp=True)])
    _, temp = await bench.hot.read([Wanted(place, birth=birth), Wanted(place, temp=True)])
    assert set(temp.entries) == {"new"}


async def test_temp_keys_of_an_earlier_life_are_not_met_by_a_reading_of_the_whole(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    old = encode_revision(START - 1)
    bench.ask("HSET", place.temp, "b", old, "r", old, "n", "1", "z", "1", "=old", old + b"1")
    bench.ask("EXPIRE", place.temp, int(TEMP))
    plan = bench.hot.plan([Wanted(place, birth=birth), Wanted(place, temp=True)])
    _, temp = await bench.hot.read_whole(plan)
    assert temp.entries == {}


async def write_temp(bench: Bench, place: Place, text: str = "1", expected: bytes = ANY) -> Written | Refused:
    """Write a temp: key of a session."""
    birth = bench.field(place, "b")
    return await bench.write_parts([Part(place, [], birth), Part(place, [put("k", text, expected)], temp=True)])


async def revision_of(bench: Bench, place: Place) -> bytes:
    """The revision of the next write to a temp: key."""
    written = await write_temp(bench, place)
    assert isinstance(written, Written)
    return written.revision


@pytest.mark.parametrize("seconds", [0.0, -600.0])
async def test_r5_no_revision_is_used_twice_though_the_temp_keys_expired(bench: Bench, seconds: float) -> None:
    place = bench.session()
    await bench.create(place)
    bench.clock.move(1)
    now = bench.clock.micros
    bench.clock.move(seconds)
    seen = [await revision_of(bench, place)]
    for _ in range(3):
        bench.ask("DEL", place.temp)
        bench.clock.micros = now + int(seconds * SECOND)
        seen.append(await revision_of(bench, place))
    assert seen == sorted(set(seen))


async def test_r5_no_revision_is_used_twice_though_the_session_was_evicted(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    bench.clock.move(-600)
    first = await revision_of(bench, place)
    stored = bench.stored(place)
    await bench.flush(place)
    bench.ask("DEL", place.hash, place.temp)
    head = stored.head
    await bench.install(
        place, known=head.revision, birth=head.birth, cleared=head.cleared, values_revision=head.values_revision
    )
    assert await revision_of(bench, place) > first


@pytest.mark.parametrize("seconds", [1.0, -600.0])
async def test_a_write_of_temp_keys_moves_neither_revision_nor_time_of_the_session(
    bench: Bench, seconds: float
) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.flush(place)
    before = [bench.field(place, name) for name in "vucb"]
    bench.clock.move(seconds)
    await write_temp(bench, place)
    assert [bench.field(place, name) for name in "vucb"] == before
    assert bench.marks(place) == (set() if seconds > 0 else {b"!"})


async def test_r5_an_edit_is_refused_by_a_temp_key_that_expired_and_was_written_anew(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    bench.clock.move(-600)
    expected = await revision_of(bench, place)
    bench.ask("DEL", place.temp)
    await write_temp(bench, place, "2")
    assert isinstance(await write_temp(bench, place, "3", expected), Refused)


async def test_a_handle_sees_temp_keys_that_expired_and_were_written_anew_in_memory() -> None:
    now = START
    cache = InMemorySessionCache(app="app", clock=lambda: now, temp_ttl=10)
    made = await cache.create("ada")
    now -= 600 * SECOND
    await made.set("temp:k", "old")
    for _ in range(2):
        await made.refresh()
    other = await cache.get("ada", made.id)
    now += 11 * SECOND
    await other.set("temp:k", "new")
    await made.refresh()
    assert made.state["temp:k"] == "new"
