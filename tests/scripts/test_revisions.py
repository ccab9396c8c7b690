"""R3: a scope's revisions only grow, whatever the clock of Redis does."""

from __future__ import annotations

from sessioncache.hot.messages import Part
from sessioncache.primitives.revisions import decode_revision
from tests.scripts.bench import SECOND, START, Bench, drop, put


async def test_a_revision_is_the_time_of_the_server_in_microseconds(bench: Bench) -> None:
    bench.clock.move(3.000_007)
    written = await bench.create(bench.session())
    assert decode_revision(written.revision) == START + 3_000_007


async def test_two_writes_in_one_microsecond_have_two_revisions(bench: Bench) -> None:
    await bench.create(bench.session())
    first = await bench.write(bench.session(), put("k", "1"))
    second = await bench.write(bench.session(), put("k", "2"))
    assert decode_revision(second.revision) == decode_revision(first.revision) + 1 == START + 2


async def test_a_revision_grows_when_the_clock_is_set_back(bench: Bench) -> None:
    created = await bench.create(bench.session())
    bench.clock.move(-3600)
    written = await bench.write(bench.session(), put("k", "1"))
    assert decode_revision(written.revision) == decode_revision(created.revision) + 1


async def test_a_delete_grows_when_the_clock_is_set_back(bench: Bench) -> None:
    place = bench.session()
    created = await bench.create(place)
    bench.clock.move(-3600)
    _, deleted = await bench.delete(place, b"")
    assert decode_revision(deleted.revision) == decode_revision(created.revision) + 1


async def test_a_new_life_is_born_above_the_tombstone_when_the_clock_is_set_back(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    _, deleted = await bench.delete(place, b"")
    bench.clock.move(-3600)
    again = await bench.create(place, token=b"")
    assert decode_revision(again.revision) == decode_revision(deleted.revision) + 1


async def test_a_create_is_above_what_sql_knew_of_the_id(bench: Bench) -> None:
    place = bench.session()
    known = START + 5 * SECOND
    created = await bench.create(place, token=await bench.take_token(place), known=known)
    assert decode_revision(created.revision) == known + 1


async def test_a_write_is_above_what_sql_knew_when_the_scope_was_hydrated(bench: Bench) -> None:
    known = START + 5 * SECOND
    await bench.install(bench.user(), known=known)
    written = await bench.write(bench.user(), put("k", "1"))
    assert decode_revision(written.revision) == known + 1


async def test_one_call_has_one_revision_above_all_the_scopes_it_writes(bench: Bench) -> None:
    known = START + 5 * SECOND
    await bench.install(bench.user(), known=known)
    created = await bench.create(bench.session(), put("k", "1"), others=[Part(bench.user(), [put("u", "2")])])
    assert decode_revision(created.revision) == known + 1
    assert bench.field(bench.session(), "=k")[:9] == bench.field(bench.user(), "=u")[:9] == created.revision


async def test_a_tombstone_of_a_key_counts_as_a_write(bench: Bench) -> None:
    await bench.create(bench.session(), put("k", "1"))
    deleted = await bench.write(bench.session(), drop("k"))
    assert bench.field(bench.session(), "=k") == deleted.revision
    assert decode_revision(deleted.revision) == START + 1


async def test_a_call_that_changes_nothing_moves_no_revision(bench: Bench) -> None:
    created = await bench.create(bench.session())
    bench.clock.move(1)
    written = await bench.write(bench.session(), drop("absent"))
    assert written.revision == created.revision == bench.field(bench.session(), "r")
