"""R5, R14, R16: a handle belongs to one life; what is deleted or cleared is dead wherever it lies."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part, Wanted
from sessioncache.hot.signals import Gone, Need, Taken, Unready
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import decode_revision, encode_revision
from tests.scripts.bench import SECOND, START, Bench, add, drop, put


async def reborn(bench: Bench) -> tuple[Place, bytes, bytes]:
    """A session that was deleted and created again: where, its first birth, its second."""
    place = bench.session()
    first = (await bench.create(place, put("k", '"old"'))).revision
    await bench.delete(place, first)
    return place, first, (await bench.create(place, token=b"")).revision


async def test_a_write_through_a_handle_of_an_earlier_life_is_refused(bench: Bench) -> None:
    place, first, _ = await reborn(bench)
    with pytest.raises(Gone):
        await bench.write(place, put("k", "1"), birth=first)
    assert await bench.values(place) == {}


async def test_a_read_through_a_handle_of_an_earlier_life_is_refused(bench: Bench) -> None:
    place, first, _ = await reborn(bench)
    with pytest.raises(Gone):
        await bench.read(place, birth=first)


async def test_a_delete_through_a_handle_of_an_earlier_life_is_refused(bench: Bench) -> None:
    place, first, second = await reborn(bench)
    with pytest.raises(Gone):
        await bench.delete(place, first)
    assert (await bench.read(place, birth=second)).head[b"b"] == second


async def test_a_tombstone_refuses_reads_and_writes(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    await bench.delete(place, b"")
    with pytest.raises(Gone):
        await bench.read(place)
    with pytest.raises(Gone):
        await bench.write(place, put("k", "1"), birth=birth)


async def test_the_tombstone_of_a_session_holds_none_of_its_values(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"), put("l", "2"))
    await bench.delete(place, b"")
    assert [field for field in bench.ask("HKEYS", place.hash) if field.startswith(b"=")] == []


async def test_a_second_delete_says_that_nothing_existed(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    assert (await bench.delete(place, b""))[0] is True
    assert (await bench.delete(place, b""))[0] is False


async def test_a_new_life_is_empty_of_the_old(bench: Bench) -> None:
    place, _, second = await reborn(bench)
    assert await bench.values(place) == {}
    assert bench.field(place, "b") == second
    assert bench.field(place, "x") == b""


async def test_a_session_that_lives_cannot_be_created_again(bench: Bench) -> None:
    await bench.create(bench.session(), put("k", "1"))
    with pytest.raises(Taken):
        await bench.create(bench.session(), put("k", "2"))
    assert await bench.values(bench.session()) == {"k": b"1"}


async def test_last_cleared_is_the_birth_less_one(bench: Bench) -> None:
    created = await bench.create(bench.session())
    assert decode_revision(bench.field(bench.session(), "c")) == decode_revision(created.revision) - 1


async def with_dead_entry(bench: Bench) -> Place:
    """A hot session with a key that lies at last cleared, as an older process could have left it, and a living one."""
    place, cleared = bench.session(), START + SECOND
    living = Entry("living", cleared + 1, b"1")
    await bench.install(place, [living], known=cleared + 1, birth=cleared + 1, cleared=cleared)
    bench.ask("HSET", place.hash, "=dead", encode_revision(cleared) + b"5")
    return place


async def test_an_entry_at_last_cleared_is_not_read(bench: Bench) -> None:
    place = await with_dead_entry(bench)
    assert await bench.values(place) == {"living": b"1"}
    assert (await bench.read(place, "dead", "living")).entries.keys() == {"living"}


async def test_an_entry_at_last_cleared_is_absent_for_a_conditional_write(bench: Bench) -> None:
    place = await with_dead_entry(bench)
    await bench.write(place, put("dead", "6", expected=b""))
    assert await bench.values(place) == {"living": b"1", "dead": b"6"}


async def test_an_entry_at_last_cleared_counts_nothing_when_incremented(bench: Bench) -> None:
    place = await with_dead_entry(bench)
    assert (await bench.write(place, add("dead", "1"))).parts[0].results == [b"1"]


async def test_an_entry_at_last_cleared_is_not_there_to_be_deleted(bench: Bench) -> None:
    place = await with_dead_entry(bench)
    assert (await bench.write(place, drop("dead"))).parts[0].results == [0]


async def test_an_entry_at_last_cleared_is_a_phantom_for_the_worker(bench: Bench) -> None:
    place = await with_dead_entry(bench)
    await bench.write(place, put("living", "2"))
    bench.ask("SADD", bench.key(place, f"d:{place.ref.member}"), "=dead")
    dirt = await bench.dirt(place)
    assert ([entry.key for entry in dirt.entries], dirt.phantoms) == (["living"], [b"=dead"])
    assert (await bench.acknowledge(dirt)).left == 0


async def test_the_tombstone_of_a_key_stays_until_it_is_acknowledged(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    await bench.flush(place)
    deleted = await bench.write(place, drop("k"))
    assert (await bench.dirt(place)).entries == [Entry("k", decode_revision(deleted.revision), b"")]
    assert bench.field(place, "=k") == deleted.revision
    await bench.flush(place)
    assert bench.field(place, "=k") == b""


async def test_a_deleted_session_is_listed_with_its_tombstone_until_it_is_flushed(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.flush(place)
    await bench.delete(place, b"")
    (listed,) = await bench.unflushed("u", place)
    assert (listed.head.session, listed.head.deleted) == ("s", True)
    await bench.flush(place)
    assert await bench.unflushed("u", place) == []


async def temp_values(bench: Bench, place: Place) -> dict[str, bytes]:
    """What a reader of the session sees of its temp: keys."""
    _, temp = await bench.hot.read([Wanted(place), Wanted(place, temp=True)])
    return {key: value[9:] for key, value in temp.entries.items()}


async def put_temp(bench: Bench, place: Place) -> None:
    """Write a temp: key through a handle of the present life."""
    own = Part(place, [], bench.field(place, "b"))
    await bench.write_parts([own, Part(place, [put("t", "1")], temp=True)])


async def test_temp_keys_are_no_dirt_and_move_no_revision_of_the_session(bench: Bench) -> None:
    place = bench.session()
    created = await bench.create(place)
    await bench.flush(place)
    bench.clock.move(1)  # else it would be ahead of the clock
    await put_temp(bench, place)
    assert await temp_values(bench, place) == {"t": b"1"}
    assert (bench.marks(place), bench.field(place, "r")) == (set(), created.revision)


async def test_temp_keys_die_with_their_session(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await put_temp(bench, place)
    await bench.delete(place, b"")
    assert bench.ask("EXISTS", place.temp) == 0


async def test_a_new_life_has_no_temp_keys_of_the_old(bench: Bench) -> None:
    place, first, _ = await reborn(bench)
    # As a handle of the first life leaves it on a primary that was deposed a moment later.
    bench.ask("HSET", place.temp, "b", first, "r", first, "n", 1, "z", 1, "=old", first + b"1")
    bench.ask("EXPIRE", place.temp, 100)
    assert await temp_values(bench, place) == {}
    await put_temp(bench, place)
    assert await temp_values(bench, place) == {"t": b"1"}


async def test_a_create_removes_the_temp_keys_that_an_evicted_life_left(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await put_temp(bench, place)
    await bench.flush(place)
    bench.ask("DEL", place.hash)
    await bench.create(place)
    assert bench.ask("EXISTS", place.temp) == 0


async def test_temp_keys_need_their_session_alive(bench: Bench) -> None:
    place = bench.session()
    birth = (await bench.create(place)).revision
    await bench.delete(place, b"")
    with pytest.raises(Gone):
        await bench.write_parts([Part(place, [], birth), Part(place, [put("t", "1")], temp=True)])
    assert bench.ask("EXISTS", place.temp) == 0


async def test_deleting_a_session_that_is_not_hot_asks_for_it_first(bench: Bench) -> None:
    with pytest.raises(Unready) as why:
        await bench.delete(bench.session(), b"")
    assert why.value.need is Need.COLD
