"""R14: use of a session that leaves no other trace is noted now and then, and keeps it."""

from __future__ import annotations

import pytest

from sessioncache.hot.signals import Gone, Unready
from sessioncache.primitives.revisions import encode_revision
from tests.scripts.bench import SECOND, START, Bench, put

INTERVAL = 100 * SECOND


async def test_use_is_noted_once_in_an_interval_and_moves_no_revision_of_the_values(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place, put("a", "1"))).revision
    await bench.flush(place)
    bench.clock.move(99)
    assert await bench.hot.use(place, birth, INTERVAL) == START + 99 * SECOND
    assert (bench.field(place, "j"), bench.marks(place)) == (b"", set())
    bench.clock.move(1)
    await bench.hot.use(place, birth, INTERVAL)
    now = encode_revision(START + INTERVAL)
    assert [bench.field(place, name) for name in "jrhuvb"] == [now, now, now, birth, birth, birth]
    assert (bench.marks(place), bench.ttl(place.hash)) == ({b"!"}, None)
    await bench.flush(place)
    bench.clock.move(99)
    await bench.hot.use(place, birth, INTERVAL)
    assert bench.marks(place) == set()


async def test_a_session_whose_use_was_noted_is_kept(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    bench.clock.move(100)
    await bench.hot.use(place, birth, INTERVAL)
    await bench.flush(place)
    used = START + INTERVAL
    assert not (await bench.hot.delete(place, unused_since=used - 1)).existed
    assert (await bench.hot.delete(place, unused_since=used)).existed


async def test_use_of_another_life_is_not_noted(bench: Bench) -> None:
    place = bench.session()
    with pytest.raises(Unready):
        await bench.hot.use(place, encode_revision(START), 0)
    birth = (await bench.create(place)).revision
    await bench.delete(place)
    with pytest.raises(Gone):
        await bench.hot.use(place, birth, 0)
    await bench.create(place, token=b"")
    with pytest.raises(Gone):
        await bench.hot.use(place, birth, 0)


async def test_a_loader_in_flight_loses_its_token(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    bench.ask("HSET", place.control, f"t:{place.ref.member}", "token")
    await bench.hot.use(place, birth, 0)
    assert not bench.ask("HEXISTS", place.control, f"t:{place.ref.member}")
