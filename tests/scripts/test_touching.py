"""Touch, rename and clear: what they change and what they leave (R1 to R5)."""

from __future__ import annotations

import pytest

from sessioncache.hot import tier
from sessioncache.hot.messages import Operation, Part, Refused, Touch, Written
from sessioncache.hot.signals import Gone, Unready
from sessioncache.primitives.revisions import encode_revision
from tests.scripts.bench import SECOND, START, Bench, put
from tests.scripts.spaces import load, write

CLEAR = Operation(b"C", "")


async def touch(bench: Bench, change: Touch, birth: bytes = b"") -> tuple[Written | Refused, dict[bytes, bytes]]:
    """Touch the session."""
    return await bench.hot.touch(Part(bench.session(), birth=birth), change)


async def test_a_touch_moves_the_head_and_no_revision_of_the_values(bench: Bench) -> None:
    session = bench.session()
    created = await bench.create(session, put("a", "1"))
    await bench.flush(session)
    bench.clock.move(1)
    written, head = await touch(bench, Touch(2, 30))
    assert isinstance(written, Written)
    assert [bench.field(session, name) for name in "rhu"] == [written.revision] * 3
    assert (bench.field(session, "v"), bench.field(session, "=a")[:9]) == (created.revision, created.revision)
    assert (bench.marks(session), bench.ttl(session.hash)) == ({b"!"}, None)
    told = {b"b": created.revision, b"u": written.revision, b"t": b"", b"m": b"2", b"k": b"30", b"q": b""}
    assert head == told


async def test_counters_are_added_to_exactly_up_to_fifteen_digits(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session)
    bench.ask("HSET", session.hash, "m", 999_999_999_999_998, "k", 99_999_999_999_999)
    _, head = await touch(bench, Touch(1, 900_000_000_000_000))
    assert (head[b"m"], head[b"k"]) == (b"999999999999999", b"999999999999999")


@pytest.mark.parametrize("counter", ["m", "k"])
async def test_a_counter_that_has_no_room_is_refused_and_nothing_is_changed(bench: Bench, counter: str) -> None:
    session = bench.session()
    await bench.create(session)
    bench.ask("HSET", session.hash, counter, 999_999_999_999_999)
    before = bench.ask("HGETALL", session.hash)
    outcome, head = await touch(bench, Touch(1, 1, "title", rename=True))
    assert isinstance(outcome, Refused)
    assert (outcome.why, outcome.detail, head) == ("limit", "counter", {})
    assert bench.ask("HGETALL", session.hash) == before


async def test_a_derived_title_is_taken_where_there_is_none_and_a_new_one_in_any_case(bench: Bench) -> None:
    await bench.create(bench.session())
    named, unnamed = Touch(title="three", rename=True), Touch(title="", rename=True)
    changes = [Touch(title="one"), Touch(title="two"), Touch(), named, unnamed, Touch(title="four")]
    told = [(await touch(bench, change))[1][b"t"] for change in changes]
    assert told == [b"one", b"one", b"one", b"three", b"", b"four"]


async def test_a_touch_is_of_one_life(bench: Bench) -> None:
    session = bench.session()
    birth = (await bench.create(session)).revision
    await bench.delete(session)
    for wanted in (birth, b""):
        with pytest.raises(Gone):
            await touch(bench, Touch(1), wanted)
    await bench.create(session, token=b"")
    with pytest.raises(Gone):
        await touch(bench, Touch(1), birth)
    assert (await touch(bench, Touch(1)))[1][b"m"] == b"1"


async def test_a_touch_needs_its_session_hot(bench: Bench) -> None:
    with pytest.raises(Unready):
        await touch(bench, Touch(1))


async def test_a_touch_that_is_delivered_again_counts_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    session = bench.session()
    await bench.create(session)
    sent = bench.record_calls(monkeypatch)
    written, _ = await touch(bench, Touch(1, 1))
    assert isinstance(written, Written)
    reply = await sent.again()
    assert (reply[:2], bench.field(session, "m")) == ([b"ok", written.revision], b"1")
    assert reply[3][3] == b"1"


async def test_a_touch_takes_the_token_away_from_a_loader_in_flight(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session)
    bench.ask("HSET", session.control, f"t:{session.ref.member}", f"inc|token|{bench.clock.micros}")
    await touch(bench, Touch(1))
    assert bench.ask("HGET", session.control, f"t:{session.ref.member}") is None


# ---- clear


async def test_clearing_what_is_empty_writes_nothing(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session)
    await bench.flush(session)
    before = bench.ask("HGETALL", session.hash)
    assert (await bench.write(session, CLEAR)).parts[0].results == [0]
    assert (bench.ask("HGETALL", session.hash), bench.marks(session)) == (before, set())


async def test_what_lies_at_last_cleared_does_not_count(bench: Bench) -> None:
    session, cleared = bench.session(), START + SECOND
    await bench.install(session, known=cleared + 1, birth=cleared + 1, cleared=cleared)
    bench.ask("HSET", session.hash, "=dead", encode_revision(cleared) + b"5")
    assert (await bench.write(session, CLEAR)).parts[0].results == [0]
    bench.ask("HDEL", session.hash, "=dead")


async def test_a_full_scope_is_cleared_and_has_room_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "LIMITS", (2, 10, 10))
    session = bench.session()
    await bench.create(session, put("a", "12345"), put("b", "12345"))
    for full in (put("c", "1"), put("a", "123456")):
        assert isinstance(await bench.try_write(session, full), Refused)
    await bench.write(session, CLEAR)
    await bench.write(session, put("c", "12345"), put("d", "12345"))
    assert [bench.field(session, name) for name in "nz"] == [b"2", b"10"]


async def test_a_clear_leaves_the_namespaces_and_the_other_way_round(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session, put("a", "1"))
    await load(bench, space)
    await write(bench, space, put("k", "1"))
    await bench.write(session, CLEAR)
    assert bench.field(space, "=k")[9:] == b"1"
    await bench.write(session, put("a", "2"))
    assert (await write(bench, space, CLEAR)).parts[1].results == [1]
    assert await bench.values(session) == {"a": b"2"}


async def test_a_clear_that_is_delivered_again_spares_what_was_written_since(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = bench.session()
    await bench.create(session, put("a", "1"))
    sent = bench.record_calls(monkeypatch)
    await bench.write(session, CLEAR)
    await bench.write(session, put("a", "2"))
    assert (await sent.again(0))[2][3] == [1], "as it was told first"
    assert await bench.values(session) == {"a": b"2"}
