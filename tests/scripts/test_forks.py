"""Forks: one step, of one life, with every namespace or not at all (R2, R4, R5, R12 to R16)."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache.hot.forking import Fork, Forking, MoreNamespaces, Spaces
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part, Written
from sessioncache.hot.signals import Gone, Need, Taken, TokenLost, Unready
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import ZERO, decode_revision, encode_revision
from tests.scripts.bench import SECOND, START, Bench, drop, put
from tests.scripts.spaces import load, with_dirty_namespaces, write


def child(bench: Bench) -> Place:
    """Where the fork will lie."""
    return bench.session("c")


async def fork(bench: Bench, *names: str, spaces: Spaces | None = None, token: bytes = b"*", known: int = 0) -> Written:
    """Fork the session with these namespaces."""
    forking = Forking(bench.hot)
    spaces = spaces or await forking.spaces(bench.session())
    pairs = [(bench.space(name), bench.space(name, "c")) for name in names]
    made = await forking.fork(
        Fork(bench.session(), child(bench), spaces, pairs), token=token, known=encode_revision(known)
    )
    assert isinstance(made, Written)
    return made


def scope(bench: Bench, place: Place) -> dict[bytes, bytes]:
    """All fields of a scope's hash."""
    return dict(bench.ask("HGETALL", place.hash))


async def test_a_fork_copies_living_keys_under_its_birth_and_marks_all_of_them(bench: Bench) -> None:
    await bench.create(bench.session(), put("a", "1"), put("b", "22"), put("gone", "3"))
    await bench.write(bench.session(), drop("gone"))
    bench.clock.move(1)
    written = await fork(bench)
    assert bench.field(child(bench), "=a") == written.revision + b"1"
    assert bench.marks(child(bench)) == {b"!", b"=a", b"=b"}
    assert [bench.field(child(bench), name) for name in "nz"] == [b"2", b"3"]
    assert [bench.field(child(bench), name) for name in "brvhu"] == [written.revision] * 5
    assert decode_revision(bench.field(child(bench), "c")) == decode_revision(written.revision) - 1
    assert (bench.ttl(child(bench).hash), bench.field(child(bench), "q")) == (None, b"s")


async def test_a_fork_changes_nothing_of_its_parent(bench: Bench) -> None:
    (space,) = await with_dirty_namespaces(bench, "n")
    before = scope(bench, bench.session()), scope(bench, space), bench.marks(bench.session())
    await fork(bench, "n")
    assert (scope(bench, bench.session()), scope(bench, space), bench.marks(bench.session())) == before


async def test_what_lies_at_last_cleared_is_not_forked(bench: Bench) -> None:
    cleared = START + SECOND
    await bench.install(bench.session(), known=cleared + 1, birth=cleared + 1, cleared=cleared)
    bench.ask("HSET", bench.session().hash, "=dead", encode_revision(cleared) + b"5")
    await fork(bench)
    assert await bench.values(child(bench)) == {}
    bench.ask("HDEL", bench.session().hash, "=dead")


async def test_temp_keys_stay_with_the_parent_and_the_child_has_none_of_an_earlier_life(bench: Bench) -> None:
    birth = (await bench.create(bench.session())).revision
    await bench.write_parts([Part(bench.session(), [], birth), Part(bench.session(), [put("t", "1")], temp=True)])
    bench.ask("HSET", child(bench).temp, "b", birth, "r", birth, "n", 1, "z", 1, "=old", birth + b"1")
    await fork(bench)
    assert bench.ask("EXISTS", bench.session().temp) == 1
    assert bench.ask("EXISTS", child(bench).temp) == 0


async def test_a_forks_namespaces_are_of_its_birth_and_pin_it(bench: Bench) -> None:
    await with_dirty_namespaces(bench, "n")
    written = await fork(bench, "n")
    copied = bench.space("n", "c")
    assert [bench.field(copied, name) for name in "brv"] == [written.revision] * 3
    assert (bench.field(copied, "g"), bench.field(copied, "d")) == (b"n", child(bench).ref.id.encode())
    assert (bench.marks(copied), bench.ttl(copied.hash)) == ({b"=k"}, None)
    await bench.flush(child(bench))
    assert bench.ttl(child(bench).hash) is None
    await bench.flush(copied)
    assert bench.ttl(child(bench).hash) is not None


async def test_a_namespace_without_keys_is_not_forked(bench: Bench) -> None:
    await bench.create(bench.session())
    await load(bench, bench.space())
    written = await fork(bench, "n")
    assert bench.ask("EXISTS", bench.space("n", "c").hash) == 0
    assert written.revision != bench.field(child(bench), "l"), "SQL is asked before the fork is forked"


# ---- with every namespace, or not at all


async def test_a_fork_is_refused_when_a_dirty_namespace_was_not_given(bench: Bench) -> None:
    await with_dirty_namespaces(bench, "one", "two")
    with pytest.raises(MoreNamespaces):
        await fork(bench, "one")
    assert bench.ask("EXISTS", child(bench).hash) == 0


async def test_a_fork_is_refused_when_a_namespace_came_into_being_since_they_were_listed(bench: Bench) -> None:
    await bench.create(bench.session())
    await bench.flush(bench.session())
    spaces = await Forking(bench.hot).spaces(bench.session())
    assert spaces.none_yet
    await load(bench, bench.space())
    await write(bench, bench.space(), put("k", "1"))
    await bench.flush(bench.space())
    with pytest.raises(MoreNamespaces):
        await fork(bench, spaces=spaces)
    again = await Forking(bench.hot).spaces(bench.session())
    assert (again.none_yet, again.dirty) == (False, [])
    await fork(bench, "n")


async def test_a_session_that_was_revalidated_may_have_namespaces_that_only_sql_knows(bench: Bench) -> None:
    await bench.create(bench.session())
    await bench.flush(bench.session())
    assert (await Forking(bench.hot).spaces(bench.session())).none_yet
    bench.fail_over()
    await bench.register()
    await bench.merge(bench.session())
    assert not (await Forking(bench.hot).spaces(bench.session())).none_yet


async def test_a_session_that_was_loaded_may_have_namespaces_that_only_sql_knows(bench: Bench) -> None:
    await bench.install(bench.session(), known=START, birth=START)
    assert not (await Forking(bench.hot).spaces(bench.session())).none_yet


async def test_a_namespace_that_came_before_its_session_was_evicted_and_loaded_again_is_not_missed(
    bench: Bench,
) -> None:
    session = bench.session()
    await bench.install(session, known=START, birth=START)
    spaces = await Forking(bench.hot).spaces(session)
    await load(bench, bench.space())
    await write(bench, bench.space(), put("k", "1"))
    for place in (session, bench.space()):
        await bench.flush(place)
    bench.ask("DEL", session.hash)
    bench.clock.move(1)
    await bench.install(session, known=START + 1, birth=START)
    with pytest.raises(MoreNamespaces):
        await fork(bench, spaces=spaces)


async def test_the_dirty_namespaces_are_told(bench: Bench) -> None:
    await with_dirty_namespaces(bench, "one", "two")
    assert sorted((await Forking(bench.hot).spaces(bench.session())).dirty) == ["one", "two"]


async def test_a_fork_asks_for_all_namespaces_that_are_not_hot(bench: Bench) -> None:
    for place in await with_dirty_namespaces(bench, "one", "two"):
        await bench.flush(place)
        bench.ask("DEL", place.hash)
    with pytest.raises(Unready) as why:
        await fork(bench, "one", "two")
    assert (why.value.need, why.value.places) == (Need.COLD, [bench.space("one"), bench.space("two")])
    assert bench.ask("EXISTS", child(bench).hash) == 0


async def test_a_fork_revalidates_before_it_copies(bench: Bench) -> None:
    (space,) = await with_dirty_namespaces(bench, "n")
    for place in (space, bench.session()):
        bench.ask("HSET", place.hash, "y", "1")
        with pytest.raises(Unready) as why:
            await fork(bench, "n", spaces=Spaces(bench.field(bench.session(), "b"), b"", ["n"]))
        assert (why.value.need, why.value.places) == (Need.REVALIDATE, [place])
    bench.ask("HDEL", bench.session().hash, "y")
    bench.ask("HDEL", space.hash, "y")


# ---- lives, ids, once


async def test_a_fork_is_of_one_life_of_its_parent(bench: Bench) -> None:
    await bench.create(bench.session(), put("a", '"old"'))
    spaces = await Forking(bench.hot).spaces(bench.session())
    await bench.delete(bench.session())
    with pytest.raises(Gone):
        await fork(bench, spaces=spaces)
    await bench.create(bench.session(), token=b"")
    with pytest.raises(Gone):
        await fork(bench, spaces=spaces)
    with pytest.raises(Gone):
        await Forking(bench.hot).spaces(bench.session(), spaces.birth)
    assert bench.ask("EXISTS", child(bench).hash) == 0


async def test_a_fork_under_the_id_of_one_that_lives_is_refused(bench: Bench) -> None:
    await bench.create(bench.session())
    await bench.create(child(bench), put("mine", "1"))
    with pytest.raises(Taken):
        await fork(bench)
    assert await bench.values(child(bench)) == {"mine": b"1"}


async def test_a_fork_under_the_callers_id_needs_the_token_under_which_sql_was_read(bench: Bench) -> None:
    await bench.create(bench.session())
    with pytest.raises(Unready) as why:
        await fork(bench, token=b"")
    assert (why.value.need, why.value.places) == (Need.COLD, [child(bench)])
    token = await bench.take_token(child(bench))
    with pytest.raises(TokenLost):
        await fork(bench, token=b"another")
    written = await fork(bench, token=token, known=START + 100 * SECOND)
    assert decode_revision(written.revision) == START + 100 * SECOND + 1
    assert bench.ask("HGET", child(bench).control, f"t:{child(bench).ref.member}") is None


async def test_a_fork_over_a_tombstone_is_above_it(bench: Bench) -> None:
    await bench.create(bench.session(), put("a", "1"))
    await bench.create(child(bench), put("old", "1"))
    _, deleted = await bench.delete(child(bench))
    bench.clock.move(-60)
    written = await fork(bench, token=b"")
    assert decode_revision(written.revision) == decode_revision(deleted.revision) + 1
    assert (await bench.values(child(bench)), bench.field(child(bench), "x")) == ({"a": b"1"}, b"")


async def test_a_fork_drops_what_an_earlier_life_of_its_id_left(bench: Bench) -> None:
    await bench.create(bench.session())
    for name in ("s", "c"):
        if name == "c":
            await bench.create(child(bench))
            await bench.flush(child(bench))
        await load(bench, bench.space("n", name))
    await write(bench, bench.space(), put("k", "1"))
    own = Part(child(bench), [], bench.field(child(bench), "b"))
    await bench.write_parts([own, Part(bench.space("n", "c"), [put("old", "1")])])
    await bench.flush(bench.space("n", "c"))
    await bench.delete(child(bench))
    await fork(bench, "n", token=b"")
    assert [name for name in scope(bench, bench.space("n", "c")) if name.startswith(b"=")] == [b"=k"]


async def test_a_fork_that_is_delivered_again_is_applied_once(bench: Bench, monkeypatch: Any) -> None:
    await bench.create(bench.session(), put("a", "1"))
    spaces = await Forking(bench.hot).spaces(bench.session())
    sent = bench.record_calls(monkeypatch)
    written = await fork(bench, spaces=spaces)
    await bench.delete(child(bench))
    assert (await sent.again(-2))[:2] == [b"ok", written.revision]
    assert bench.field(child(bench), "x") != b""


async def test_what_is_remembered_of_a_fork_holds_no_value(bench: Bench) -> None:
    await bench.create(bench.session(), put("a", '"planted"'))
    await load(bench, bench.space(), Entry("k", START, b'"planted"'))
    await fork(bench, "n")
    remembered = b"".join(b"".join(bench.ask("HVALS", bench.key(child(bench), f"ops:{n}"))) for n in "01")
    assert b"ok" in remembered
    assert b"planted" not in remembered
    assert ZERO in remembered
