"""What is stored in pieces is not there until it is born, whole, marks first (R1, R3, R5, R12, R15)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fakeredis.aioredis import AsyncFakeSocket

from sessioncache.hot.forking import Fork, Forking, TooLarge
from sessioncache.hot.large_creates import Birth, gathered
from sessioncache.hot.messages import Gathered, Part, Refused, Written
from sessioncache.hot.signals import PiecesLost, Taken, TokenLost, Unready
from sessioncache.primitives.entries import Head
from sessioncache.primitives.revisions import ZERO, decode_revision, encode_revision
from sessioncache.settings import MAX_CALL_BYTES, MAX_CALL_KEYS
from tests.scripts.bench import SECOND, START, Bench, put
from tests.scripts.spaces import load, write

TEXTS = {"a": b"1", "b": b'"22"'}


async def born(bench: Bench, pieces: Gathered, *others: Part, token: bytes = b"*", known: bytes = ZERO) -> Written:
    """Create the session of the pieces."""
    place = bench.session()
    head = Head("org", "app", "u", "s", 0, title="A trip")
    parts = [Part(place, [], b"+"), *others]
    made = await bench.hot.create(parts, head, token=token, known=known, pieces=pieces)
    assert isinstance(made, Written)
    return made


async def fork(bench: Bench, pieces: Gathered | None, *names: str) -> Written | Refused:
    """Fork the session by the pieces."""
    forking = Forking(bench.hot)
    pairs = [(bench.space(name), bench.space(name, "c")) for name in names]
    made = Fork(bench.session(), bench.session("c"), await forking.spaces(bench.session()), pairs, pieces=pieces)
    return await forking.fork(made, token=b"*", known=ZERO)


def lying(bench: Bench) -> list[bytes]:
    """What lies in pieces."""
    return sorted(bench.ask("KEYS", "*:p:*"))


async def test_pieces_are_no_scope_and_expire(bench: Bench) -> None:
    place = bench.session()
    async with gathered(bench.link, b"*", ZERO, [Birth(place, TEXTS)]):
        assert len(lying(bench)) == 2
        assert all(bench.ttl(key) for key in lying(bench))
        assert not bench.raw.keys("*:h:*")
        assert not bench.raw.keys("*:d:*")
        assert bench.ask("EXISTS", place.hash, place.dirty) == 0
    assert lying(bench) == []


async def test_a_birth_has_what_a_create_has(bench: Bench) -> None:
    place = bench.session()
    async with gathered(bench.link, b"*", ZERO, [Birth(place, TEXTS)]) as pieces:
        bench.clock.move(1)
        await born(bench, pieces)
    found = dict(bench.ask("HGETALL", place.hash))
    other = await bench.create(bench.session("other"), put("a", "1"), put("b", '"22"'))
    like = dict(bench.ask("HGETALL", bench.session("other").hash))
    assert found.keys() == {*like, b"t"}
    assert (found[b"n"], found[b"z"], found[b"i"]) == (like[b"n"], like[b"z"], like[b"i"])
    assert pieces.birth == encode_revision(START) < other.revision
    assert {name: found[name] for name in (b"r", b"b", b"v", b"h", b"u", b"l")} == dict.fromkeys(
        (b"r", b"b", b"v", b"h", b"u", b"l"), pieces.birth
    )
    assert decode_revision(found[b"c"]) == START - 1
    assert found[b"=a"] == pieces.birth + b"1"
    assert bench.marks(place) == bench.marks(bench.session("other")) == {b"!", b"=a", b"=b"}
    assert bench.ttl(place.hash) is None


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[bytes]]]:
    """The commands that scripts execute, with their arguments, in order."""
    seen: list[tuple[str, list[bytes]]] = []
    run = AsyncFakeSocket._run_command

    def record(self: AsyncFakeSocket, func: object, sig: object, args: list[bytes], from_script: bool) -> object:
        if from_script and args:
            seen.append((sig.name, args))  # type: ignore[attr-defined]
        return run(self, func, sig, args, from_script)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncFakeSocket, "_run_command", record)
    return seen


async def test_marks_and_index_come_before_the_hash_which_is_whole(
    bench: Bench, commands: list[tuple[str, list[bytes]]]
) -> None:
    place = bench.session()
    async with gathered(bench.link, b"*", ZERO, [Birth(place, TEXTS)]) as pieces:
        commands.clear()
        await born(bench, pieces)
    names = [name for name, _ in commands if name in ("zadd", "rename", "hset")]
    assert names.index("zadd") < names.index("rename")
    renamed = [args[1] for name, args in commands if name == "rename"]
    assert renamed == [place.dirty, place.hash]
    last = max(at for at, (name, _) in enumerate(commands) if name == "rename")
    assert not [args for name, args in commands[last:] if name == "hset" and args[0] == place.hash]


@pytest.mark.parametrize("lost", [0, 1])
async def test_lost_pieces_are_missed(bench: Bench, lost: int) -> None:
    place = bench.session()
    async with gathered(bench.link, b"*", ZERO, [Birth(place, TEXTS)]) as pieces:
        bench.raw.delete(lying(bench)[lost])
        with pytest.raises(PiecesLost):
            await born(bench, pieces)
    assert bench.ask("EXISTS", place.hash, place.dirty) == 0


async def test_a_birth_is_above_sql_the_tombstone_and_its_temp_keys(bench: Bench) -> None:
    place = bench.session()
    known = encode_revision(START + 5 * SECOND)
    async with gathered(bench.link, b"*", known, [Birth(place, TEXTS)]) as pieces:
        assert pieces.birth == encode_revision(START + 5 * SECOND + 1)
    await bench.create(place)
    await bench.delete(place)
    for name, seconds in (("r", 10), ("e", 20)):
        bench.ask("HSET", place.hash, name, encode_revision(START + seconds * SECOND))
        async with gathered(bench.link, b"", ZERO, [Birth(place, TEXTS)]) as pieces:
            assert pieces.birth == encode_revision(START + seconds * SECOND + 1)
    for name in ("r", "e"):
        async with gathered(bench.link, b"", ZERO, [Birth(place, TEXTS)]) as pieces:
            bench.ask("HSET", place.hash, name, pieces.birth)
            with pytest.raises(PiecesLost):
                await born(bench, pieces, token=b"")
    async with gathered(bench.link, b"", ZERO, [Birth(place, TEXTS)]) as pieces:
        with pytest.raises(PiecesLost):
            await born(bench, pieces, token=b"", known=pieces.birth)
        bench.ask("HSET", place.hash, "r", encode_revision(decode_revision(pieces.birth) - 1))
        await born(bench, pieces, token=b"")


async def test_nothing_is_stored_for_an_id_that_is_not_free(bench: Bench) -> None:
    place = bench.session()
    wrong: Sequence[tuple[bytes, type[Exception]]] = ((b"", Unready), (b"none", TokenLost))
    for token, error in wrong:
        with pytest.raises(error):
            async with gathered(bench.link, token, ZERO, [Birth(place, TEXTS)]):
                pytest.fail("something was stored")
    await bench.create(place)
    with pytest.raises(Taken):
        async with gathered(bench.link, b"*", ZERO, [Birth(place, TEXTS)]):
            pytest.fail("something was stored")


async def test_what_is_shared_is_above_the_birth_and_temp_keys_are_of_it(bench: Bench) -> None:
    place, user = bench.session(), bench.user()
    await bench.install(user, known=START + 7 * SECOND)
    others = [Part(user, [put("u", "1")]), Part(place, [put("t", "1")], temp=True)]
    known = encode_revision(START + 9 * SECOND)
    async with gathered(bench.link, b"*", known, [Birth(place, TEXTS)]) as pieces:
        made = await born(bench, pieces, *others, known=known)
    assert made.revision == bench.field(user, "r") == encode_revision(decode_revision(pieces.birth) + 1)
    assert bench.ask("HGET", place.temp, "r") == bench.field(place, "r") == pieces.birth


async def test_a_birth_that_is_delivered_again_is_applied_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.session()
    async with gathered(bench.link, b"*", ZERO, [Birth(place, TEXTS)]) as pieces:
        sent = bench.record_calls(monkeypatch)
        first = await born(bench, pieces)
        assert (await sent.again())[:2] == [b"ok", first.revision]
    assert bench.field(place, "b") == pieces.birth


OF_A_SPACE = 20
"""Keys that take a script as long as a namespace, however few it has."""


async def with_namespaces(bench: Bench, keys: int, *names: str) -> None:
    """A session, and namespaces of it that share so many keys."""
    await bench.create(bench.session(), put("a", "1"))
    for name in names:
        await load(bench, bench.space(name))
        await write(bench, bench.space(name), *(put(f"k{n}", "1") for n in range(keys // len(names))))


async def test_one_script_forks_what_one_call_may_change(bench: Bench) -> None:
    await with_namespaces(bench, MAX_CALL_KEYS - OF_A_SPACE - 1, "n")
    assert isinstance(await fork(bench, None, "n"), Written)


@pytest.mark.parametrize("names", [("n",), ("m", "n")])
async def test_what_is_larger_is_not_forked_by_one_script(bench: Bench, names: Sequence[str]) -> None:
    await with_namespaces(bench, MAX_CALL_KEYS - OF_A_SPACE * len(names), *names)
    with pytest.raises(TooLarge):
        await fork(bench, None, *names)
    assert bench.ask("EXISTS", bench.session("c").hash) == 0


async def test_more_bytes_than_one_call_may_write_are_not_forked_by_one_script(bench: Bench) -> None:
    await bench.create(bench.session(), *(put(key, "1" * (MAX_CALL_BYTES // 2)) for key in "ab"))
    assert isinstance(await fork(bench, None), Written)
    await bench.delete(bench.session("c"))
    await bench.write(bench.session(), put("c", "1"))
    with pytest.raises(TooLarge):
        await fork(bench, None)


async def test_a_fork_of_pieces_has_what_the_pieces_have(bench: Bench) -> None:
    await with_namespaces(bench, 2, "n")
    child, space = bench.session("c"), bench.space("n", "c")
    # What is left of an earlier life of the id.
    bench.raw.hset(space.hash, mapping={"=old": encode_revision(START - 9) + b"1", "d": child.ref.id})
    bench.raw.sadd(space.dirty, "=old")
    births = [Birth(child, TEXTS), Birth(space, {"k": b"7"})]
    async with gathered(bench.link, b"*", ZERO, births) as pieces:
        await write(bench, bench.space(), put("late", "1"))
        made = await fork(bench, pieces, "n")
    assert isinstance(made, Written)
    assert made.revision == pieces.birth
    assert await bench.values(child) == TEXTS
    assert (bench.marks(child), bench.marks(space)) == ({b"!", b"=a", b"=b"}, {b"=k"})
    found = dict(bench.ask("HGETALL", space.hash))
    assert found[b"=k"] == pieces.birth + b"7"
    assert (found[b"g"], found[b"d"], found[b"n"], found[b"b"]) == (b"n", child.ref.id.encode(), b"1", pieces.birth)
    assert b"=old" not in found
    assert bench.ask("SISMEMBER", bench.key(space, "spaces"), space.ref.member) == 1
    assert bench.ask("SMEMBERS", bench.key(child, f"ns:{child.ref.id}")) == {space.ref.member.encode()}
    assert (bench.field(child, "q"), bench.field(child, "l") < pieces.birth) == (b"s", True)


@pytest.mark.parametrize("lost", range(4))
async def test_a_fork_misses_lost_pieces_of_a_namespace_as_well(bench: Bench, lost: int) -> None:
    await with_namespaces(bench, 2, "n")
    births = [Birth(bench.session("c"), TEXTS), Birth(bench.space("n", "c"), TEXTS)]
    async with gathered(bench.link, b"*", ZERO, births) as pieces:
        bench.raw.delete(lying(bench)[lost])
        with pytest.raises(PiecesLost):
            await fork(bench, pieces, "n")
    assert bench.ask("EXISTS", bench.session("c").hash, bench.space("n", "c").hash) == 0
