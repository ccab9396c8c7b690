"""R1, R2, R19: one atomic step, deltas only, marks before values, and the operations of a write."""

from __future__ import annotations

import pytest
from fakeredis.aioredis import AsyncFakeSocket

from sessioncache.hot import tier
from sessioncache.hot.messages import ABSENT, Part, Refused, Written
from sessioncache.hot.signals import Need, Unready
from sessioncache.primitives.revisions import ZERO
from tests.scripts.bench import Bench, add, drop, push, put

Commands = list[tuple[str, bytes]]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """The commands that scripts execute, with their keys, in order."""
    seen: Commands = []
    run = AsyncFakeSocket._run_command

    def record(self: AsyncFakeSocket, func: object, sig: object, args: list[bytes], from_script: bool) -> object:
        if from_script and args:
            seen.append((sig.name, args[0]))  # type: ignore[attr-defined]
        return run(self, func, sig, args, from_script)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncFakeSocket, "_run_command", record)
    return seen


async def test_marks_index_and_persist_come_before_the_values(bench: Bench, commands: Commands) -> None:
    place = bench.user()
    await bench.install(place)
    commands.clear()
    await bench.write(place, put("k", "1"))
    changes = [name for name, key in commands if name in ("sadd", "zadd", "persist", "hset") and b":ops" not in key]
    assert changes == ["sadd", "zadd", "zadd", "persist", "hset", "hset"]
    hashes = [key for name, key in commands if name == "hset"]
    assert hashes == [place.hash, place.control, bench.key(place, "ops:0")], "the operation is remembered at last"


async def test_a_delete_marks_the_head_before_it_changes_it(bench: Bench, commands: Commands) -> None:
    place = bench.session()
    await bench.create(place, put("k", "1"))
    commands.clear()
    await bench.delete(place, b"")
    changes = [name for name, _ in commands if name in ("sadd", "persist", "hset", "hdel", "del")]
    assert changes[:2] == ["sadd", "persist"]


async def test_a_new_life_is_marked_before_the_tombstone_goes(bench: Bench, commands: Commands) -> None:
    place = bench.session()
    await bench.create(place)
    await bench.delete(place, b"")
    commands.clear()
    await bench.create(place, token=b"")
    changes = [name for name, _ in commands if name in ("sadd", "persist", "hset", "hdel", "del")]
    assert changes[:2] == ["sadd", "persist"]


async def test_every_part_is_checked_before_any_is_written(bench: Bench, commands: Commands) -> None:
    session, user = bench.session(), bench.user()
    await bench.create(session)
    commands.clear()
    with pytest.raises(Unready) as why:
        await bench.write_parts(
            [Part(session, [put("k", "1")], bench.field(session, "b")), Part(user, [put("u", "1")])]
        )
    assert (why.value.need, why.value.places) == (Need.COLD, [user])
    changes = {"sadd", "zadd", "persist", "hset"}
    written = {key for name, key in commands if name in changes}
    assert written == {bench.key(session, "ops:0")}, "only that the call was refused"


async def test_all_cold_parts_are_named_at_once(bench: Bench) -> None:
    with pytest.raises(Unready) as why:
        await bench.write_parts([Part(bench.user(), [put("k", "1")]), Part(bench.app(), [put("k", "1")])])
    assert why.value.places == [bench.user(), bench.app()]


async def test_writers_of_different_keys_both_keep_them(bench: Bench) -> None:
    await bench.install(bench.app())
    await bench.write(bench.app(), put("a", "1"))
    await bench.write(bench.app(), put("b", "2"))
    assert await bench.values(bench.app()) == {"a": b"1", "b": b"2"}


async def test_a_key_that_looks_like_a_head_field_is_an_ordinary_key(bench: Bench) -> None:
    await bench.create(bench.session(), put("r", "1"), put("=", "2"), put("!", "3"))
    assert await bench.values(bench.session()) == {"r": b"1", "=": b"2", "!": b"3"}


async def test_a_write_only_if_the_key_is_unchanged_is_refused_when_it_changed(bench: Bench) -> None:
    first = await bench.create(bench.session(), put("k", "1"), put("other", "1"))
    await bench.write(bench.session(), put("k", "2"))
    outcome = await bench.try_write(bench.session(), put("other", "9"), put("k", "3", first.revision))
    assert outcome == Refused("stale", [(0, 1)])
    assert await bench.values(bench.session()) == {"k": b"2", "other": b"1"}


async def test_all_stale_keys_are_named(bench: Bench) -> None:
    await bench.create(bench.session(), put("a", "1"), put("b", "1"))
    outcome = await bench.try_write(bench.session(), put("a", "2", ABSENT), put("c", "1"), drop("b", ZERO))
    assert outcome == Refused("stale", [(0, 0), (0, 2)])


async def test_a_deleted_key_is_absent_for_a_write_that_expects_absence(bench: Bench) -> None:
    await bench.create(bench.session(), put("k", "1"))
    await bench.write(bench.session(), drop("k"))
    assert isinstance(await bench.try_write(bench.session(), put("k", "2", ABSENT)), Written)


async def test_if_revision_refuses_a_scope_that_moved_on(bench: Bench) -> None:
    created = await bench.create(bench.session())
    await bench.write(bench.session(), put("k", "1"))
    assert await bench.try_write(bench.session(), put("k", "2"), if_revision=created.revision) == Refused("stale", [])
    assert await bench.values(bench.session()) == {"k": b"1"}


async def test_deleting_an_absent_key_is_no_dirt(bench: Bench) -> None:
    await bench.install(bench.user())
    written = await bench.write(bench.user(), drop("k"))
    assert (written.parts[0].changed, written.parts[0].results) == (False, [0])
    assert bench.marks(bench.user()) == set()


@pytest.mark.parametrize(
    ("value", "by", "total"),
    [("41", "1", b"42"), ("-1", "1", b"0"), ("999999999999998", "1", b"999999999999999"), ("0", "-7", b"-7")],
)
async def test_whole_numbers_of_up_to_15_digits_are_added_by_the_script(
    bench: Bench, value: str, by: str, total: bytes
) -> None:
    await bench.create(bench.session(), put("n", value))
    assert (await bench.write(bench.session(), add("n", by))).parts[0].results == [total]
    assert await bench.values(bench.session()) == {"n": total}


async def test_the_sum_of_15_digits_is_exact_also_where_it_has_16(bench: Bench) -> None:
    await bench.create(bench.session(), put("n", "999999999999999"))
    written = await bench.write(bench.session(), add("n", "999999999999999"))
    assert written.parts[0].results == [b"1999999999999998"]


@pytest.mark.parametrize(
    ("value", "by"), [("1000000000000000", "1"), ("1.5", "1"), ("1", "0.5"), ("1e3", "1"), ('"x"', "1"), ("null", "1")]
)
async def test_what_lua_cannot_add_exactly_is_left_to_the_client(bench: Bench, value: str, by: str) -> None:
    created = await bench.create(bench.session(), put("n", value))
    outcome = await bench.try_write(bench.session(), add("n", by))
    assert outcome == Refused("compute", [(0, 0)], text=value.encode(), revision=created.revision)
    assert await bench.values(bench.session()) == {"n": value.encode()}


async def test_an_increment_of_an_absent_key_is_the_increment(bench: Bench) -> None:
    await bench.create(bench.session())
    assert (await bench.write(bench.session(), add("n", "0.1"))).parts[0].results == [b"0.1"]


@pytest.mark.parametrize(
    ("value", "items", "text"),
    [
        ("[]", ["1"], b"[1]"),
        ("[1]", [], b"[1]"),
        ("[]", [], b"[]"),
        ("[1]", ['"a"', "[2]"], b'[1,"a",[2]]'),
        ('["]"]', ["{}"], b'["]",{}]'),
    ],
)
async def test_an_append_is_spliced_into_the_text(bench: Bench, value: str, items: list[str], text: bytes) -> None:
    await bench.create(bench.session(), put("l", value))
    assert (await bench.write(bench.session(), push("l", *items))).parts[0].results == [text]
    assert await bench.values(bench.session()) == {"l": text}


async def test_an_append_to_an_absent_key_creates_the_list(bench: Bench) -> None:
    await bench.create(bench.session())
    assert (await bench.write(bench.session(), push("l", "1", "2"))).parts[0].results == [b"[1,2]"]


async def test_an_append_to_something_else_than_a_list_is_a_mismatch(bench: Bench) -> None:
    await bench.create(bench.session(), put("l", '{"a":[1]}'))
    assert await bench.try_write(bench.session(), push("l", "1")) == Refused("mismatch", [(0, 0)])


@pytest.mark.parametrize(
    ("limits", "detail"), [((2, 1000, 1000), "keys"), ((10, 7, 1000), "bytes"), ((10, 1000, 3), "value")]
)
async def test_a_write_beyond_a_limit_is_refused_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int, int], detail: str
) -> None:
    await bench.create(bench.session(), put("a", "1"))
    monkeypatch.setattr(tier, "LIMITS", limits)
    outcome = await bench.try_write(bench.session(), put("b", "22"), put("c", "33333"))
    assert isinstance(outcome, Refused)
    assert (outcome.why, outcome.detail) == ("limit", detail)
    assert await bench.values(bench.session()) == {"a": b"1"}


async def test_what_is_replaced_or_deleted_makes_room_within_the_limits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.create(bench.session(), put("a", "1234"), put("b", "1234"))
    monkeypatch.setattr(tier, "LIMITS", (2, 8, 8))
    assert isinstance(await bench.try_write(bench.session(), put("a", "1"), put("b", "1234567")), Written)
    assert isinstance(await bench.try_write(bench.session(), drop("a"), put("c", "1")), Written)
    assert await bench.values(bench.session()) == {"b": b"1234567", "c": b"1"}


@pytest.mark.parametrize("limits", [(1, 1000, 1000), (10, 4, 1000), (10, 1000, 2)])
async def test_what_is_above_a_limit_may_become_smaller_and_is_no_obstacle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int, int]
) -> None:
    session, user = bench.session(), bench.user()
    await bench.create(session, put("a", "1234"), put("b", "1234"))
    await bench.install(user)
    monkeypatch.setattr(tier, "LIMITS", limits)
    beside = [Part(session, [], bench.field(session, "b")), Part(user, [put("x", "1")])]
    assert isinstance(await bench.write_parts(beside), Written), "the session is part of the call, and not written"
    assert isinstance(await bench.try_write(session, put("a", "4321")), Written)
    assert isinstance(await bench.try_write(session, put("a", "123")), Written)
    assert isinstance(await bench.try_write(session, drop("a")), Written)
    assert isinstance(await bench.try_write(session, put("b", "12345"), put("c", "123"), put("d", "1")), Refused)


async def test_an_append_counts_towards_the_largest_value(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.create(bench.session(), put("l", "[1,2]"))
    monkeypatch.setattr(tier, "LIMITS", (10, 100, 6))
    assert await bench.try_write(bench.session(), push("l", "3")) == Refused("limit", [(0, 0)], detail="value")


async def test_what_one_call_replaces_is_not_read_where_it_is_too_much(bench: Bench, commands: Commands) -> None:
    place = bench.session()
    await bench.create(place, *(put(f"k{number}", '"' + "x" * 900_000 + '"') for number in range(5)))
    temp = [
        Part(place, [], bench.field(place, "b")),
        Part(place, [put(f"t{n}", "x" * 900_000) for n in range(5)], temp=True),
    ]
    assert isinstance(await bench.write_parts(temp), Written)
    many = [put(f"k{number}", "1") for number in range(5)]
    for operations in (many, [drop(f"k{number}") for number in range(5)]):
        assert await bench.try_write(place, *operations) == Refused("limit", [(0, -1)], detail="replaced")
    again = [temp[0], Part(place, [put(f"t{n}", "1") for n in range(5)], temp=True)]
    assert await bench.write_parts(again) == Refused("limit", [(1, -1)], detail="replaced")
    assert isinstance(await bench.try_write(place, *many[1:]), Written)
    assert isinstance(await bench.try_write(place, *many), Written)
