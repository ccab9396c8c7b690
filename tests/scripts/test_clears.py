"""R14: a clear raises last cleared and makes the hash anew; what it keeps and what it drops."""

from __future__ import annotations

from collections import Counter

import pytest
from fakeredis.aioredis import AsyncFakeSocket

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Operation, Part, Touch, Wanted, Written
from sessioncache.hot.subscriptions import MOST_TOLD
from sessioncache.primitives.revisions import decode_revision
from tests.scripts.bench import SECOND, START, Bench, add, drop, push, put
from tests.scripts.spaces import load, write

CLEAR = Operation(b"C", "")


def fields(bench: Bench, place: Place) -> dict[bytes, bytes]:
    """The head fields of a hash; there are no entries."""
    found: dict[bytes, bytes] = bench.ask("HGETALL", place.hash)
    assert [name for name in found if name.startswith(b"=")] == []
    return found


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often scripts call each command, arguments counted."""
    seen: Counter[str] = Counter()
    run = AsyncFakeSocket._run_command

    def record(self: AsyncFakeSocket, func: object, sig: object, args: list[bytes], from_script: bool) -> object:
        if from_script:
            seen[sig.name] += len(args)  # type: ignore[attr-defined]
        return run(self, func, sig, args, from_script)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncFakeSocket, "_run_command", record)
    return seen


async def test_a_clear_counts_living_keys_and_leaves_the_head_alone(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session, put("a", "1"), put("b", "22"), put("gone", "3"))
    await bench.write(session, drop("gone"))
    before = bench.ask("HGETALL", session.hash)
    bench.clock.move(1)
    cleared = await bench.write(session, CLEAR)
    assert cleared.parts[0].results == [2]
    head = fields(bench, session)
    assert [head[name] for name in (b"r", b"v", b"h", b"u")] == [cleared.revision] * 4
    assert decode_revision(head[b"c"]) == decode_revision(cleared.revision) - 1
    assert (head[b"n"], head[b"z"]) == (b"0", b"0")
    changed = {b"r", b"v", b"h", b"u", b"c", b"n", b"z"}
    assert {name for name in before if not name.startswith(b"=")} == set(head)
    assert all(head[name] == before[name] for name in set(head) - changed)
    dirt = await bench.dirt(session)
    assert (dirt.entries, dirt.phantoms, dirt.head.cleared) == ([], [], decode_revision(head[b"c"]))
    assert (bench.marks(session), bench.ttl(session.hash)) == ({b"!"}, None)
    assert (await bench.flush(session)).left == 0
    assert bench.ttl(session.hash) is not None


async def test_a_clear_of_many_keys_does_no_more_than_one_of_few(bench: Bench, commands: Counter[str]) -> None:
    done = []
    for number in (MOST_TOLD + 1, 10 * MOST_TOLD):
        session = bench.session(f"s{number}")
        await bench.create(session, *(put(f"k{n}", "1") for n in range(number)))
        commands.clear()
        assert (await bench.write(session, CLEAR)).parts[0].results == [number]
        done.append(Counter(commands))
    assert done[0] == done[1]


@pytest.mark.parametrize("scope", ["user", "app"])
async def test_a_shared_scope_is_cleared_and_flushed(bench: Bench, scope: str) -> None:
    place: Place = getattr(bench, scope)()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    cleared = await bench.write(place, CLEAR)
    assert (bench.marks(place), fields(bench, place)[b"h"]) == ({b"!"}, cleared.revision)
    dirt = await bench.dirt(place)
    assert dirt.head.cleared == decode_revision(cleared.revision) - 1
    assert (await bench.acknowledge(dirt)).left == 0
    await bench.write(place, put("a", "2"))
    assert await bench.values(place) == {"a": b"2"}


async def test_a_namespace_is_cleared_and_flushed(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    await load(bench, space)
    await write(bench, space, put("k", "1"))
    await bench.flush(session)
    cleared = await write(bench, space, CLEAR)
    head = fields(bench, space)
    assert (head[b"g"], head[b"d"], head[b"h"]) == (b"n", session.ref.id.encode(), cleared.revision)
    assert bench.ttl(session.hash) is None, "pinned by its namespace"
    await bench.flush(session)
    dirt = await bench.dirt(space)
    assert (dirt.entries, dirt.namespace_cleared) == ([], decode_revision(cleared.revision) - 1)
    assert (await bench.acknowledge(dirt)).left == 0


async def test_what_the_same_call_sets_after_the_clear_lives(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session, put("a", "1"), put("n", "5"), put("l", "[1]"))
    changes = (put("b", "2"), CLEAR, put("a", "3", b""), add("n", "2"), push("l", "9"), drop("b"))
    written = await bench.write(session, *changes)
    assert written.parts[0].results == [b"", 4, b"", b"2", b"[9]", 0]
    assert await bench.values(session) == {"a": b"3", "n": b"2", "l": b"[9]"}
    assert [bench.field(session, name) for name in "nz"] == [b"3", b"5"]
    assert bench.marks(session) == {b"!", b"=a", b"=n", b"=l"}
    dirt = await bench.dirt(session)
    assert {entry.key for entry in dirt.entries} == {"a", "n", "l"}


async def test_temp_keys_are_cleared_and_no_revision_of_them_comes_again(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session)
    birth = bench.field(session, "b")
    await bench.write_parts([Part(session, birth=birth), Part(session, [put("t", "1")], temp=True)])
    cleared = await bench.write_parts([Part(session, birth=birth), Part(session, [CLEAR], temp=True)])
    assert isinstance(cleared, Written)
    assert cleared.parts[1].results == [1]
    assert bench.ask("HGETALL", session.temp) == {b"b": birth, b"r": cleared.revision, b"n": b"0", b"z": b"0"}
    assert bench.ttl(session.temp) is not None
    assert bench.field(session, "e") == cleared.revision
    _, content = await bench.hot.read([Wanted(session, []), Wanted(session, temp=True)])
    assert content.entries == {}


async def test_a_letter_of_what_was_cleared_goes_and_that_of_the_head_stays(bench: Bench) -> None:
    session, other = bench.session(), bench.user()
    await bench.create(session, put("bad", "1"))
    await bench.refuse(session, "bad")
    await bench.hot.touch(Part(session), Touch(1))
    await bench.install(other)
    await bench.write(other, put("bad", "1"))
    await bench.refuse(other, "bad")
    letters = bench.key(session, "dead")
    bench.ask("HSET", letters, session.ref.member + "!", "whatever")
    await bench.write(session, CLEAR)
    left = {f"{session.ref.member}!".encode(), f"{other.ref.member}=bad".encode()}
    assert set(bench.ask("HKEYS", letters)) == left, "the head's is taken back by its flush, which wakes the namespaces"


async def test_a_clear_takes_the_token_from_a_loader(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session, put("a", "1"))
    bench.ask("HSET", session.control, f"t:{session.ref.member}", f"inc|token|{bench.clock.micros}")
    await bench.write(session, CLEAR)
    assert bench.ask("HGET", session.control, f"t:{session.ref.member}") is None


async def test_a_clear_keeps_what_is_known_to_be_flushed_and_purged(bench: Bench) -> None:
    place = bench.user()
    await bench.install(place, known=START + SECOND)
    await bench.write(place, put("a", "1"), put("b", "1"))
    await bench.flush(place)
    await bench.write(place, drop("b"))
    await bench.flush(place)
    before = bench.field(place, "f"), bench.field(place, "p")
    assert all(before)
    await bench.write(place, CLEAR)
    assert (bench.field(place, "f"), bench.field(place, "p")) == before


async def test_every_head_field_is_kept(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session, put("a", "1"))
    rest = dict.fromkeys((b"f", b"p", b"t", b"m", b"k", b"q", b"d", b"g", b"e", b"j"), b"1")
    for name, value in rest.items():
        bench.ask("HSET", session.hash, name, value)
    await bench.write(session, CLEAR)
    assert rest.items() <= fields(bench, session).items()
    bench.ask("FLUSHDB")  # no session is like this one
