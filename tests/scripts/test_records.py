"""Records: an upsert compares times within the script, and the date in front of a text is no part of its JSON."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache.hot import tier
from sessioncache.hot.forking import Fork, Forking
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Operation, Refused, Written
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import DIGITS, LARGEST, decode_revision
from sessioncache.primitives.timestamps import dated
from tests.scripts.bench import Bench, add, drop, push, put

AT = 2**40


def upsert(key: str, text: str, at: int) -> Operation:
    """Set a key to a JSON text of a given time."""
    return Operation(b"R", key, dated(text.encode(), at))


@pytest.fixture
async def place(bench: Bench) -> Place:
    """A session."""
    made = bench.session()
    await bench.create(made)
    return made


async def tried(bench: Bench, place: Place, *operations: Operation) -> Any:
    """The result of the last of some operations."""
    written = await bench.write(place, *operations)
    return written.parts[0].results[-1]


@pytest.mark.parametrize(
    ("there", "given", "expected"),
    [
        (AT, AT - 1, 0),
        (AT, AT, 1),
        (AT, AT + 1, 1),
        (LARGEST, LARGEST - 1, 0),
        (LARGEST - 1, LARGEST, 1),
        (2**53 + 1, 2**53, 0),
        (63, 64, 1),
        (64, 63, 0),
        (0, 0, 1),
    ],
)
async def test_only_what_is_older_than_the_entry_is_left_out(
    bench: Bench, place: Place, there: int, given: int, expected: int
) -> None:
    await bench.write(place, upsert("k", '"there"', there))
    assert await tried(bench, place, upsert("k", '"given"', given)) == expected
    assert await bench.values(place) == {"k": dated(b'"given"', given) if expected else dated(b'"there"', there)}


async def test_an_entry_without_a_date_is_as_old_as_its_revision(bench: Bench, place: Place) -> None:
    revision = decode_revision((await bench.write(place, put("k", "1"))).revision)
    assert await tried(bench, place, upsert("k", "2", revision - 1)) == 0
    assert await tried(bench, place, upsert("k", "3", revision)) == 1
    assert (
        await tried(
            bench,
            place,
            put("k", "4"),
        )
        == b""
    )
    assert await tried(bench, place, upsert("k", "5", revision)) == 0


async def test_what_is_left_out_writes_nothing(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "1", AT))
    await bench.flush(place)
    before = bench.ask("HGETALL", place.hash)
    written = await bench.write(place, upsert("k", "2", AT - 1))
    assert (written.parts[0].changed, written.revision) == (False, bench.field(place, "v"))
    assert (bench.ask("HGETALL", place.hash), bench.marks(place)) == (before, set())


async def test_beside_other_operations_only_the_older_record_is_left_out(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "1", AT))
    written = await bench.write(place, upsert("k", "2", AT - 1), put("other", "2"))
    assert written.parts[0].results == [0, b""]
    assert await bench.values(place) == {"k": dated(b"1", AT), "other": b"2"}


async def test_a_deleted_entry_is_of_no_time(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "1", LARGEST))
    await bench.write(place, drop("k"))
    assert await tried(bench, place, upsert("k", "2", 0)) == 1


async def test_a_repeat_is_told_what_the_first_was(bench: Bench, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.write(place, upsert("k", "1", AT))
    sent = bench.record_calls(monkeypatch)
    await bench.write(place, upsert("k", "2", AT - 1))
    await bench.write(place, drop("k"))
    assert (await sent.again(0))[2][3] == [0]
    assert await bench.values(place) == {}


@pytest.mark.parametrize(
    ("json", "operation", "expected"),
    [
        ("41", add("k", "1"), b"42"),
        ("[1]", push("k", "2", "3"), b"[1,2,3]"),
        ("[]", push("k", "1"), b"[1]"),
        ("[1]", push("k"), b"[1]"),
    ],
)
async def test_increment_and_append_see_the_json_and_take_the_date_away(
    bench: Bench, place: Place, json: str, operation: Operation, expected: bytes
) -> None:
    await bench.write(place, upsert("k", json, AT))
    assert await tried(bench, place, operation) == expected
    assert await bench.values(place) == {"k": expected}


async def test_what_the_client_has_to_add_comes_without_the_date(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "0.5", AT))
    outcome = await bench.try_write(place, add("k", "1"))
    assert isinstance(outcome, Refused)
    assert (outcome.why, outcome.text) == ("compute", b"0.5")


async def test_the_bytes_of_a_scope_are_those_of_its_json(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("a", "12345", AT), upsert("b", "1", AT), put("c", "123"))
    assert bench.field(place, "z") == b"9"
    await bench.write(place, put("a", "1"), upsert("b", "123", AT + 1), upsert("c", "1", LARGEST))
    assert bench.field(place, "z") == b"5"
    await bench.write(place, drop("b"))
    assert bench.field(place, "z") == b"2"
    await bench.write(place, Operation(b"C", ""))
    assert (bench.field(place, "n"), bench.field(place, "z")) == (b"0", b"0")


async def test_limits_are_for_the_json_alone(bench: Bench, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "LIMITS", (10, 8, 4))
    assert isinstance(await bench.try_write(place, upsert("a", "1234", AT), upsert("b", "1234", AT)), Written)
    for text, detail in (("12345", "value"), ("1", "bytes")):
        outcome = await bench.try_write(place, upsert("c", text, AT))
        assert isinstance(outcome, Refused)
        assert (outcome.why, outcome.detail) == ("limit", detail)


async def test_what_is_read_for_a_flush_bears_the_date(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "1", AT))
    (entry,) = (await bench.dirt(place)).entries
    assert (entry.key, entry.text) == ("k", dated(b"1", AT))


async def test_a_fork_takes_dates_along(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "1", AT), put("own", "22"))
    forking, child = Forking(bench.hot), bench.session("child")
    fork = Fork(place, child, await forking.spaces(place), [])
    assert await forking.fork(fork, token=b"*", known=b"-" * DIGITS)
    assert await bench.values(child) == {"k": dated(b"1", AT), "own": b"22"}
    assert bench.field(child, "z") == b"3"


async def test_revalidation_keeps_dates_of_both_sides(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("mine", "11", AT), upsert("older", "1", AT))
    revision = decode_revision(bench.field(place, "r"))
    bench.fail_over()
    await bench.register()
    rows = [Entry("older", revision + 1, dated(b"222", AT + 1)), Entry("lost", revision, dated(b"3", 0))]
    assert await bench.merge(place, *rows) == 1
    assert await bench.values(place) == {"mine": dated(b"11", AT), "older": rows[0].text, "lost": rows[1].text}
    assert (bench.field(place, "n"), bench.field(place, "z")) == (b"3", b"6")


async def test_what_is_stamped_above_sql_keeps_its_date(bench: Bench, place: Place) -> None:
    await bench.write(place, upsert("k", "1", AT))
    bench.ask("HSET", place.hash, "y", "1")
    revision = decode_revision(bench.field(place, "r"))
    assert await bench.merge(place, Entry("k", revision + 5, dated(b"2", AT + 1))) == 2
    (entry,) = (await bench.dirt(place)).entries
    assert (entry.text, entry.revision > revision + 5) == (dated(b"1", AT), True)


async def test_dates_come_with_what_is_installed(bench: Bench) -> None:
    place = bench.session()
    await bench.install(place, [Entry("k", 5, dated(b"1", AT))], known=5, birth=1)
    assert await tried(bench, place, upsert("k", "2", AT - 1)) == 0
    assert await bench.values(place) == {"k": dated(b"1", AT)}
