"""R5, R16: temp: keys never leave Redis, and belong to one life of their session."""

from __future__ import annotations

from sessioncache import SessionCache
from sessioncache.hot.calls import Part, Wanted
from sessioncache.revisions import encode_revision
from tests.helpers import Urls, drain, fetch
from tests.scripts.bench import START, TEMP, Bench, put

SECRET = "told to nobody"


async def test_temp_values_never_reach_sql(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "temp:one": SECRET})
    await made.update({"b": 2, "temp:two": SECRET})
    await made.append("temp:list", SECRET)
    await drain(urls)
    await made.flush(5)
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
    await bench.hot.write([Part(place, [], birth), Part(place, [put("new", "2")], temp=True)])
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
