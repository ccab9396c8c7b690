"""A call passes through no more modules than it did: whoever follows it has to open each."""

from __future__ import annotations

from tests.roads import roads

MOST = {
    "update of a hot session": 16,
    "get of a hot session": 17,
    "get of one key": 14,
    "flush of one session": 34,
}


async def test_the_roads_of_calls_do_not_get_longer() -> None:
    found = {name: len(road.modules) for name, road in (await roads()).items()}
    assert {name: number for name, number in found.items() if number > MOST[name]} == {}
    assert found.keys() == MOST.keys()
