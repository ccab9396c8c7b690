"""The dirt of large scopes: no script takes long with it, and it is one reading, acknowledged by version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakeredis.aioredis import AsyncFakeSocket

from sessioncache.hot.backlog import Counters
from sessioncache.hot.client import Reply, Request
from sessioncache.hot.dirty_fields import PIECE_BYTES, PIECE_ROWS, Piece, pieces_of
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Acknowledged
from sessioncache.hot.signals import Need, Unready
from sessioncache.primitives.entries import Committed, Dirt, Entry, Head
from sessioncache.primitives.revisions import decode_revision
from sessioncache.primitives.scopes import ScopeKind
from tests.scripts.bench import BUCKETS, DELAY, SECOND, START, Bench, put

MANY = 2_500
"""Keys: three pieces of an acknowledgement, two of a reading."""
FIRST, LAST = "k0", f"k{MANY - 1}"


class _StoppedError(Exception):
    """A worker ends here."""


@pytest.fixture
def in_lua(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The fields of each HMGET in a script."""
    seen: list[list[bytes]] = []
    run = AsyncFakeSocket._run_command

    def record(self: AsyncFakeSocket, func: object, sig: object, args: list[bytes], from_script: bool) -> object:
        if from_script and sig.name == "hmget":  # type: ignore[attr-defined]
            seen.append(list(args[1:]))
        return run(self, func, sig, args, from_script)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncFakeSocket, "_run_command", record)
    return seen


async def large(bench: Bench, place: Place | None = None, keys: int = MANY) -> Place:
    """A session of many keys, all of them dirty."""
    place = place or bench.session()
    await bench.create(place, *(put(f"k{number}", "1") for number in range(keys)))
    return place


def before_each_piece(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, do: Callable[[int], Awaitable[Any]]
) -> list[bytes]:
    """Let something happen before each piece of a reading; the commands that were asked."""
    asked: list[bytes] = []
    ask = bench.link.ask

    async def overtaken(request: Request, *, is_large: bool = False) -> list[Reply]:
        asked.append(bytes(request.commands[0][0]))  # type: ignore[arg-type]
        assert len(asked) < 50, "it does not end"
        await do(len(asked))
        return await ask(request, is_large=is_large)

    monkeypatch.setattr(bench.link, "ask", overtaken)
    return asked


async def nothing(_: int) -> None:
    """Happens."""


def texts(dirt: Dirt) -> dict[str, bytes]:
    """What was read."""
    return {entry.key: entry.text for entry in dirt.entries}


async def test_values_of_many_keys_do_not_go_through_lua(bench: Bench, in_lua: list[list[bytes]]) -> None:
    place = await large(bench)
    in_lua.clear()
    dirt = await bench.dirt(place)
    assert texts(dirt) == {f"k{number}": b"1" for number in range(MANY)}
    assert dirt.head.revision == decode_revision(bench.field(place, "r"))
    assert not [fields for fields in in_lua if b"=" + FIRST.encode() in fields]


async def test_large_values_do_not_go_through_lua(bench: Bench, in_lua: list[list[bytes]]) -> None:
    place, text = bench.session(), '"' + "x" * (PIECE_BYTES // 2) + '"'
    await bench.create(place, put("a", text), put("b", text), put("c", "1"))
    in_lua.clear()
    assert texts(await bench.dirt(place)) == {"a": text.encode(), "b": text.encode(), "c": b"1"}
    assert not [fields for fields in in_lua if b"=a" in fields]


async def test_a_few_small_changes_of_a_large_scope_are_read_in_one_script(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, text = bench.session(), '"' + "x" * PIECE_BYTES + '"'
    await bench.create(place, put("a", text), put("b", "1"))
    await bench.flush(place)
    await bench.write(place, put("b", "2"))
    asked = before_each_piece(bench, monkeypatch, nothing)
    assert texts(await bench.dirt(place)) == {"b": b"2"}
    assert asked == []


async def test_a_scope_that_changes_between_two_pieces_is_read_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await large(bench)

    async def change(piece: int) -> None:
        if piece == 2:
            bench.clock.move(1)
            await bench.write(place, put(FIRST, "2"), put(LAST, "2"))

    asked = before_each_piece(bench, monkeypatch, change)
    dirt = await bench.dirt(place)
    assert (texts(dirt)[FIRST], texts(dirt)[LAST]) == (b"2", b"2"), "of one instant"
    assert max(entry.revision for entry in dirt.entries) <= dirt.head.revision
    assert dirt.read_at == START + SECOND
    assert asked == [b"HMGET"] * 4


async def test_a_scope_that_is_written_all_the_time_is_read_nevertheless(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await large(bench)

    async def change(piece: int) -> None:
        bench.clock.move(1)
        await bench.write(place, put(FIRST, str(piece)), put(LAST, str(piece)))

    asked = before_each_piece(bench, monkeypatch, change)
    dirt = await bench.dirt(place)
    assert asked == [b"HMGET"] * 5 + [b"MULTI"]
    assert (texts(dirt)[FIRST], texts(dirt)[LAST]) == (b"6", b"6")
    assert len(dirt.entries) == MANY
    assert dirt.head.revision == decode_revision(bench.field(place, "r"))
    assert (await bench.acknowledge(dirt)).left == 0


async def test_a_scope_that_is_flagged_between_two_pieces_is_settled_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await large(bench)

    async def flag(_: int) -> None:
        bench.raw.hset(place.hash, "y", "1")

    before_each_piece(bench, monkeypatch, flag)
    (found,) = await bench.backlog.read_dirt([(place.ref.bucket, place.ref.member)])
    assert isinstance(found, Unready)
    assert found.need is Need.REVALIDATE


async def test_an_acknowledgement_in_pieces_leaves_nothing(bench: Bench, in_lua: list[list[bytes]]) -> None:
    place = await large(bench)
    dirt = await bench.dirt(place)
    in_lua.clear()
    done = await bench.acknowledge(dirt)
    assert (done.left, done.rows, done.refused) == (0, MANY, [])
    assert max(map(len, in_lua)) <= PIECE_ROWS + 10
    assert decode_revision(bench.field(place, "f")) == dirt.head.revision
    assert (bench.due(place), bench.since(place)) == (None, None)
    assert bench.ttl(place.hash) is not None
    counters = await bench.backlog.counters(range(BUCKETS))
    assert counters == Counters(MANY, {0: MANY})
    assert bench.raw.hget(place.control, "flushes") == b"1"


async def test_what_a_worker_did_not_acknowledge_to_the_end_is_flushed_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await large(bench)
    await bench.claim(bucket=place.ref.bucket, everything=True)
    dirt, claimed = await bench.dirt(place), bench.due(place)
    call, done = bench.link.call_each, list[Reply]()

    async def stop(*args: Any, **options: Any) -> Reply:
        if done:
            raise _StoppedError
        done.append(await call(*args, **options))
        return done[0]

    monkeypatch.setattr(bench.link, "call_each", stop)
    with pytest.raises(_StoppedError):
        await bench.acknowledge(dirt)
    monkeypatch.setattr(bench.link, "call_each", call)
    assert len(bench.marks(place)) == MANY - PIECE_ROWS + 1
    assert b"!" in bench.marks(place), "the head is acknowledged with the last piece"
    assert bench.field(place, "f") == b""
    assert (bench.due(place), bench.ttl(place.hash)) == (claimed, None), "it is claimed still, and pinned"
    again = await bench.dirt(place)
    assert len(again.entries) == MANY - PIECE_ROWS
    assert (await bench.acknowledge(again)).left == 0
    assert decode_revision(bench.field(place, "f")) == dirt.head.revision


async def test_a_row_that_was_refused_in_an_early_piece_holds_flushed_through_back(bench: Bench) -> None:
    place = await large(bench)
    bench.clock.move(2)
    dirt = await bench.dirt(place)
    since, early = bench.since(place), dirt.entries[0]
    bench.clock.move(3)
    done = await bench.acknowledge(dirt, {early.key: early.revision + 9})
    assert (done.left, done.rows, done.refused) == (1, MANY - 1, [b"=" + early.key.encode()])
    assert bench.marks(place) == {b"=" + early.key.encode()}
    assert bench.field(place, "f") == b""
    assert bench.since(place) == since, "it gets no younger"
    assert bench.due(place) == bench.clock.micros + round(DELAY * SECOND)


async def test_what_is_written_between_two_pieces_stays_dirty(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = await large(bench)
    dirt, call = await bench.dirt(place), bench.link.call_each
    last = dirt.entries[-1]

    async def meanwhile(*args: Any, **options: Any) -> Reply:
        monkeypatch.setattr(bench.link, "call_each", call)
        acknowledged = await call(*args, **options)
        bench.clock.move(1)
        await bench.write(place, put(dirt.entries[0].key, "2"), put(last.key, "2"))
        return acknowledged

    monkeypatch.setattr(bench.link, "call_each", meanwhile)
    assert (await bench.acknowledge(dirt)).left == 3
    assert bench.marks(place) == {b"!", b"=" + dirt.entries[0].key.encode(), b"=" + last.key.encode()}
    assert decode_revision(bench.field(place, "f")) == dirt.head.revision


async def test_marks_of_nothing_are_acknowledged_in_pieces_too(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    bench.raw.sadd(bench.key(place, f"d:{place.ref.member}"), *(f"=ghost{number}" for number in range(MANY)))
    dirt = await bench.dirt(place)
    assert len(dirt.phantoms) == MANY
    assert (await bench.acknowledge(dirt)).left == 0


async def test_nothing_of_another_incarnation_is_acknowledged_in_any_piece(bench: Bench) -> None:
    place = await large(bench)
    dirt = await bench.dirt(place)
    await bench.forget()
    assert await bench.try_acknowledge(dirt) is None
    assert len(bench.marks(place)) == MANY + 1


async def test_scopes_of_one_script_have_no_more_rows_than_one_piece(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [await large(bench, bench.session(f"s{number}"), 400) for number in range(8)]
    scopes = [(place.ref.bucket, place.ref.member) for place in places]
    found = [one for one in await bench.backlog.read_dirt(scopes) if isinstance(one, Dirt)]
    committed = [Committed(one, one.head.revision, [entry.revision for entry in one.entries]) for one in found]
    calls: list[int] = []
    call_each = bench.link.call_each

    async def counted(script: Any, asked: Any) -> list[Reply]:
        calls.extend(len(keys) - 1 for keys, _ in asked)
        return await call_each(script, asked)

    monkeypatch.setattr(bench.link, "call_each", counted)
    acknowledged = await bench.backlog.acknowledge(committed, delay=DELAY)
    assert [isinstance(done, Acknowledged) and done.left for done in acknowledged] == [0] * 8
    assert calls == [2] * 4


async def test_values_without_a_letter_are_not_looked_at_for_letters(bench: Bench, in_lua: list[list[bytes]]) -> None:
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("bad", "1"), put("good", "2"))
    await bench.record_failure(await bench.dirt(place), "bad")
    in_lua.clear()
    (state,) = await bench.hot.flush_state([place])
    assert set(state.dead) == {"bad"}
    assert [b"=bad"] in in_lua
    assert not [fields for fields in in_lua if b"=good" in fields]


def committed(sizes: list[int], phantoms: int = 0) -> Committed:
    """A transaction of rows of these sizes."""
    entries = [Entry(f"k{number}", 1, b"1" * size) for number, size in enumerate(sizes)]
    head = Head("", "", "u", "", revision=1)
    dirt = Dirt(ScopeKind.USER, "u", 0, "i", head, b"", entries, phantoms=[b"=ghost"] * phantoms)
    return Committed(dirt, 1, [1] * len(sizes))


@pytest.mark.parametrize(
    ("sizes", "phantoms", "pieces"),
    [
        ([], 0, [Piece(0, 0, 0)]),
        ([1, 2], 1, [Piece(0, 3, 3)]),
        ([1] * (PIECE_ROWS + 1), 0, [Piece(0, PIECE_ROWS, PIECE_ROWS), Piece(PIECE_ROWS, PIECE_ROWS + 1, 1)]),
        ([PIECE_BYTES + 5, 1], 0, [Piece(0, 1, PIECE_BYTES + 5), Piece(1, 2, 1)]),
        ([1], PIECE_ROWS, [Piece(0, PIECE_ROWS, 1), Piece(PIECE_ROWS, PIECE_ROWS + 1, 0)]),
    ],
)
def test_pieces_are_cut_by_rows_and_by_bytes(sizes: list[int], phantoms: int, pieces: list[Piece]) -> None:
    assert pieces_of(committed(sizes, phantoms)) == pieces
