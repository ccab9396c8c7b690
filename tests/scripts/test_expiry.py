"""R15, R16: what is dirty has no time to live, what is clean has one, and use renews it."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part, Wanted
from sessioncache.settings import TOMBSTONE_RETENTION
from tests.scripts.bench import IDLE, TEMP, Bench, put


async def clean(bench: Bench) -> Place:
    """A user's scope that was hydrated."""
    await bench.install(bench.user())
    return bench.user()


async def test_a_hydrated_scope_stays_for_the_idle_time(bench: Bench) -> None:
    assert bench.ttl((await clean(bench)).hash) == IDLE


async def test_a_write_takes_the_time_to_live_away(bench: Bench) -> None:
    place = await clean(bench)
    await bench.write(place, put("k", "1"))
    assert bench.ttl(place.hash) is None


async def test_a_dirty_scope_outlives_any_silence(bench: Bench) -> None:
    place = await clean(bench)
    await bench.write(place, put("k", "1"))
    bench.clock.move(1000 * IDLE)
    assert await bench.values(place) == {"k": b"1"}


@pytest.mark.parametrize("keys", [(), ("k",)])
async def test_a_read_never_gives_a_dirty_scope_a_time_to_live(bench: Bench, keys: tuple[str, ...]) -> None:
    place = await clean(bench)
    await bench.write(place, put("k", "1"))
    await bench.read(place, *keys)
    assert bench.ttl(place.hash) is None


async def test_an_acknowledgement_of_everything_gives_it_back(bench: Bench) -> None:
    place = await clean(bench)
    await bench.write(place, put("k", "1"))
    await bench.flush(place)
    assert bench.ttl(place.hash) == IDLE


async def test_an_acknowledgement_that_leaves_a_mark_does_not(bench: Bench) -> None:
    place = await clean(bench)
    await bench.write(place, put("k", "1"))
    dirt = await bench.dirt(place)
    await bench.write(place, put("k", "2"))
    await bench.acknowledge(dirt)
    assert bench.ttl(place.hash) is None


async def test_the_tombstone_of_a_session_stays_for_the_retention_once_flushed(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.delete(place, b"")
    assert bench.ttl(place.hash) is None
    await bench.flush(place)
    assert bench.ttl(place.hash) == TOMBSTONE_RETENTION


async def test_a_read_renews_once_half_of_the_idle_time_is_over(bench: Bench) -> None:
    place = await clean(bench)
    bench.clock.move(IDLE / 2)
    await bench.read(place)
    assert bench.ttl(place.hash) == IDLE / 2
    bench.clock.move(0.001)
    await bench.read(place)
    assert bench.ttl(place.hash) == IDLE


async def test_what_is_dirty_stays_pinned_where_what_is_read_beside_it_is_renewed(bench: Bench) -> None:
    user, session = await clean(bench), bench.session()
    await bench.create(session)
    bench.clock.move(IDLE * 3 / 4)
    await bench.hot.read([Wanted(session), Wanted(user)])
    assert (bench.ttl(user.hash), bench.ttl(session.hash)) == (IDLE, None)


async def test_a_clean_scope_that_nobody_uses_goes(bench: Bench) -> None:
    place = await clean(bench)
    bench.clock.move(IDLE + 0.001)
    assert bench.ask("EXISTS", place.hash) == 0


async def with_temp(bench: Bench) -> Place:
    """A session with a temp: key."""
    place = bench.session()
    birth = (await bench.create(place)).revision
    await bench.write_parts([Part(place, [], birth), Part(place, [put("t", "1")], temp=True)])
    return place


async def read_temp(bench: Bench, place: Place) -> dict[str, bytes]:
    """The temp: keys of a session, as a reader sees them."""
    _, temp = await bench.hot.read([Wanted(place), Wanted(place, temp=True)])
    return temp.entries


async def test_temp_keys_have_a_time_to_live_from_the_first_write(bench: Bench) -> None:
    assert bench.ttl((await with_temp(bench)).temp) == TEMP


async def test_a_read_of_temp_keys_renews_them(bench: Bench) -> None:
    place = await with_temp(bench)
    bench.clock.move(TEMP - 1)
    await read_temp(bench, place)
    assert bench.ttl(place.temp) == TEMP


async def test_a_write_of_temp_keys_renews_them(bench: Bench) -> None:
    place = await with_temp(bench)
    bench.clock.move(TEMP - 1)
    own = Part(place, [], bench.field(place, "b"))
    await bench.write_parts([own, Part(place, [put("u", "2")], temp=True)])
    assert bench.ttl(place.temp) == TEMP


async def test_temp_keys_that_nobody_uses_go(bench: Bench) -> None:
    place = await with_temp(bench)
    bench.clock.move(TEMP + 0.001)
    assert await read_temp(bench, place) == {}
