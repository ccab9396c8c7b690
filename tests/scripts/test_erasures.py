"""R14: what an erasure decides by time, and what may not outlive it; deletes that are conditional on the last use."""

from __future__ import annotations

import pytest

from sessioncache.hot.forking import Fork, Forking
from sessioncache.hot.large_creates import Birth, gathered
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Part, Refused, Token, Written
from sessioncache.hot.signals import Erased, TokenLost, Unready
from sessioncache.hot.tier import HotTier
from sessioncache.primitives.entries import Entry, Head, StoredScope
from sessioncache.primitives.revisions import ZERO, decode_revision
from sessioncache.primitives.scopes import namespace_ref
from tests.scripts.bench import IDLE, SECOND, Bench, drop, put

GRACE = 60.0


async def user_scope(bench: Bench) -> Place:
    """A user's scope with one key."""
    place = bench.user()
    await bench.install(place)
    await bench.write(place, put("a", "1"))
    return place


async def erase(bench: Bench, place: Place) -> int:
    """Erase a scope as an erasure does once SQL knows of it; its revision then."""
    stamp = await bench.hot.erase(place, GRACE)
    revision = decode_revision(stamp.revision)
    assert await bench.backlog.scrub(place, revision)
    return revision


async def fork(bench: Bench, parent: Place) -> Written | Refused:
    """Fork a session without namespaces."""
    forking = Forking(bench.hot)
    spaces = await forking.spaces(parent)
    return await forking.fork(Fork(parent, bench.session("child"), spaces), token=b"*", known=ZERO)


async def test_the_keys_go_at_once_and_are_counted(bench: Bench) -> None:
    place = await user_scope(bench)
    await bench.write(place, put("b", "1"), drop("a"))
    stamp = await bench.hot.erase(place, GRACE)
    assert stamp.living == 1
    assert await bench.values(place) == {}
    assert bench.marks(place) == {b"!"}
    assert decode_revision(stamp.revision) >= bench.clock.micros
    assert (await bench.hot.erase(place, GRACE)).living == 0
    assert (await bench.dirt(place)).entries == []


async def test_nothing_is_let_in_until_the_microsecond_of_the_end(bench: Bench) -> None:
    parent = bench.session()
    await bench.create(parent)
    place = await user_scope(bench)
    await bench.hot.erase(place, GRACE)
    for wait in (0, GRACE - 0.000_001):
        bench.clock.move(wait)
        assert await bench.try_write(place, put("a", "1")) == Refused("erased", [])
        assert await bench.try_write(place, drop("a")) == Refused("erased", [])
        assert await bench.try_create(bench.session("new")) == Refused("erased", [])
        assert await fork(bench, parent) == Refused("erased", [])
    bench.clock.move(0.000_001)
    await bench.write(place, put("a", "2"))
    await bench.create(bench.session("new"))
    assert isinstance(await fork(bench, parent), Written)


async def test_a_call_is_refused_as_a_whole(bench: Bench) -> None:
    place = await user_scope(bench)
    host = bench.session()
    await bench.create(host)
    await bench.hot.erase(place, GRACE)
    parts = [Part(host, [put("k", "1")], bench.field(host, "b")), Part(place, [put("a", "1")])]
    assert await bench.write_parts(parts) == Refused("erased", [])
    assert await bench.values(host) == {}
    await bench.write(host, put("k", "1"))


async def test_other_users_of_the_bucket_are_let_in(bench: Bench) -> None:
    await bench.hot.erase(await user_scope(bench), GRACE)
    names = (f"other{number}" for number in range(100))
    other = next(name for name in names if bench.user(name).control == bench.user().control)
    await bench.create(bench.session("s", other))
    await bench.install(bench.user(other))
    await bench.write(bench.user(other), put("a", "1"))
    assert await bench.values(bench.user(other)) == {"a": b"1"}


async def test_each_erasure_begins_the_time_anew(bench: Bench) -> None:
    place = await user_scope(bench)
    await bench.hot.erase(place, GRACE)
    bench.clock.move(40)
    await bench.hot.erase(place, GRACE)
    bench.clock.move(40)
    assert await bench.try_write(place, put("a", "1")) == Refused("erased", [])


async def test_what_is_over_is_forgotten_with_the_next_erasure(bench: Bench) -> None:
    place = await user_scope(bench)
    await bench.hot.erase(place, GRACE)
    bench.clock.move(GRACE)
    names = (f"other{number}" for number in range(100))
    other = next(bench.user(name) for name in names if bench.user(name).control == place.control)
    await bench.install(other)
    await bench.hot.erase(other, GRACE)
    assert bench.ask("HKEYS", bench.key(place, "erased")) == [other.ref.id.encode()]


async def test_a_date_absurdly_far_ahead_keeps_nobody_out(bench: Bench) -> None:
    place = await user_scope(bench)
    await bench.hot.erase(place, GRACE)
    bench.clock.move(-7_200)
    await bench.write(place, put("a", "2"))
    assert await bench.values(place) == {"a": b"2"}


async def test_the_token_of_a_loader_in_flight_is_destroyed(bench: Bench) -> None:
    place = await user_scope(bench)
    bench.ask("HSET", place.control, f"t:{place.ref.member}", "whatever")
    await bench.hot.erase(place, GRACE)
    assert bench.ask("HGET", place.control, f"t:{place.ref.member}") is None


async def test_what_has_been_written_since_is_not_dropped(bench: Bench) -> None:
    place = await user_scope(bench)
    stamp = await bench.hot.erase(place, GRACE)
    bench.clock.move(GRACE)
    await bench.write(place, put("a", "2"))
    assert not await bench.backlog.scrub(place, decode_revision(stamp.revision))
    assert await bench.values(place) == {"a": b"2"}


async def test_what_is_read_meanwhile_bears_no_name_and_is_gone_before_anything_is_let_in(bench: Bench) -> None:
    place = await user_scope(bench)
    revision = await erase(bench, place)
    bench.clock.move(10)
    await bench.install(place, known=revision)
    assert bench.field(place, "w") == b""
    assert await bench.values(place) == {}
    bench.clock.move(40)
    await bench.read(place)
    bench.clock.move(GRACE - 50)
    with pytest.raises(Unready):
        await bench.write(place, put("a", "2"))
    await bench.install(place, known=revision)
    assert (bench.field(place, "w"), bench.ttl(place.hash)) == (b"u", IDLE)
    await bench.write(place, put("a", "2"))
    assert (await bench.dirt(place)).head.user == "u"


async def test_a_second_erasure_finds_what_was_read_meanwhile(bench: Bench) -> None:
    place = await user_scope(bench)
    await bench.install(place, known=await erase(bench, place))
    await bench.hot.erase(place, GRACE)
    assert bench.field(place, "w") == b"u", "by its name"
    assert bench.ttl(place.hash) is None
    assert (await bench.dirt(place)).head.user == "u"


# ---- what lies in pieces


def lying(bench: Bench) -> set[bytes]:
    """The scopes of which something lies in pieces."""
    return {key.split(b":")[3] for key in bench.ask("KEYS", "*:p:*")}


def member(place: Place) -> bytes:
    """Kind and id of a scope."""
    return place.ref.member.encode()


def neighbour(bench: Bench) -> str:
    """Another user of the same bucket."""
    names = (f"other{number}" for number in range(100))
    return next(name for name in names if bench.user(name).control == bench.user().control)


async def test_what_of_the_user_is_about_to_be_born_goes_at_once(bench: Bench) -> None:
    place, other = await user_scope(bench), bench.session("s", neighbour(bench))
    births = [Birth(bench.session(), {"a": b"1"}), Birth(bench.space(), {"k": b"1"})]
    async with gathered(bench.link, b"*", ZERO, births), gathered(bench.link, b"*", ZERO, [Birth(other, {"a": b"1"})]):
        assert lying(bench) == {member(bench.session()), member(bench.space()), member(other)}
        await bench.hot.erase(place, GRACE)
        assert lying(bench) == {member(other)}
    assert lying(bench) == set()


async def test_nothing_is_stored_in_pieces_until_the_end(bench: Bench) -> None:
    place, births = await user_scope(bench), [Birth(bench.session(), {"a": b"1"})]
    await bench.hot.erase(place, GRACE)
    for wait in (0, GRACE - 0.000_001):
        bench.clock.move(wait)
        with pytest.raises(Erased):
            async with gathered(bench.link, b"*", ZERO, births):
                pytest.fail("something was stored")
    assert lying(bench) == set()
    bench.clock.move(0.000_001)
    async with gathered(bench.link, b"*", ZERO, births):
        assert lying(bench) == {member(bench.session())}


async def test_what_of_the_user_is_being_loaded_goes_at_once(bench: Bench) -> None:
    place, app = await user_scope(bench), bench.app()
    for one in (bench.session(), app):
        await bench.hot.stage(one, await bench.take_token(one), [b"=k", ZERO + b"1"])
    await bench.hot.erase(place, GRACE)
    assert lying(bench) == {member(app)}


async def test_a_namespace_is_loaded_no_more_once_its_session_is_gone(bench: Bench) -> None:
    place, host, space = await user_scope(bench), bench.session(), bench.space()
    await bench.create(host)
    taken = await bench.hot.take_token(space)
    assert isinstance(taken, Token)
    await bench.hot.stage(space, taken.value, [b"=k", ZERO + b"1"], birth=taken.birth)
    await bench.hot.delete(host)
    await bench.hot.erase(place, GRACE)
    with pytest.raises(TokenLost):
        await bench.hot.stage(space, taken.value, [b"=l", ZERO + b"1"], birth=taken.birth)
    assert lying(bench) == set()


async def test_the_index_of_pieces_forgets_what_has_expired(bench: Bench) -> None:
    index = bench.key(bench.user(), "pieces")
    async with gathered(bench.link, b"*", ZERO, [Birth(bench.session(), {"a": b"1"})]):
        pass
    assert (bench.ask("ZCARD", index), bench.ttl(index)) == (1, None)
    bench.clock.move(3_600)
    other = bench.session("s", neighbour(bench))
    async with gathered(bench.link, b"*", ZERO, [Birth(other, {"a": b"1"})]):
        (found,) = bench.ask("ZRANGE", index, 0, -1)
    assert found.startswith(other.user + member(other) + b":")


async def with_namespace(bench: Bench, name: str) -> tuple[Place, Place]:
    """A session with a namespace of two keys."""
    host = bench.session()
    await bench.create(host)
    space = bench.layout.place(namespace_ref(host.ref, name))
    taken = await bench.hot.take_token(space)
    assert isinstance(taken, Token)
    fields = [b"r", ZERO, b"b", taken.birth, b"d", space.parents, b"g", name.encode(), b"n", b"0", b"z", b"0"]
    await bench.hot.install(space, taken.value, fields, staged=0, birth=taken.birth)
    parts = [Part(host, birth=taken.birth), Part(space, [put("k", "1"), put("l", "1")])]
    assert isinstance(await bench.write_parts(parts), Written)
    return host, space


async def test_a_delete_is_remembered_without_any_name(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = await with_namespace(bench, "a telling name")
    sent = bench.record_calls(monkeypatch)
    deleted = await bench.hot.delete(host)
    assert deleted.namespaces == {"a telling name": 2}
    assert (await sent.again())[6] == []
    for generation in "01":
        assert b"telling" not in b"".join(bench.ask("HVALS", bench.key(host, f"ops:{generation}")))


# ---- retention


async def clean(bench: Bench) -> tuple[HotTier, Place, int]:
    """A clean session and when it was in use last."""
    place = bench.session()
    await bench.create(place, put("a", "1"))
    await bench.flush(place)
    return bench.hot, place, decode_revision(bench.field(place, "u"))


async def test_a_clean_session_goes_if_its_last_use_is_not_later(bench: Bench) -> None:
    hot, place, used = await clean(bench)
    assert not (await hot.delete(place, unused_since=used - 1)).existed
    assert (await hot.delete(place, unused_since=used - 1)).written is None
    assert (await hot.delete(place, unused_since=used)).existed


async def test_a_dirty_session_is_kept_however_old(bench: Bench) -> None:
    hot, place, used = await clean(bench)
    await bench.write(place, put("a", "2"))
    assert not (await hot.delete(place, unused_since=used + SECOND * 3_600)).existed
    assert await bench.values(place) == {"a": b"2"}


async def test_a_session_with_a_dirty_namespace_is_kept_however_old(bench: Bench) -> None:
    host, space = await with_namespace(bench, "tools")
    await bench.flush(host)
    assert (bench.marks(host), len(bench.marks(space))) == (set(), 2)
    later = bench.clock.micros + SECOND * 3_600
    assert not (await bench.hot.delete(host, unused_since=later)).existed
    await bench.flush(space)
    assert (await bench.hot.delete(host, unused_since=later)).existed


async def test_a_scope_that_is_not_hot_is_erased_above_all_that_sql_knows(bench: Bench) -> None:
    place = bench.user()
    with pytest.raises(Unready):
        await bench.hot.erase(place, GRACE)
    known = bench.clock.micros + 10 * SECOND
    stored = StoredScope(Head("org", "app", "u", "", known), [Entry("a", known, b"1")], known)
    stamp = await bench.hot.erase(place, GRACE, await bench.take_token(place), stored)
    assert (stamp.living, decode_revision(stamp.revision)) == (1, known + 1)
    assert bench.field(place, "c") == stamp.revision
    assert await bench.backlog.scrub(place, known + 1)


async def test_a_scope_that_is_not_hot_is_erased_only_under_the_token_of_the_reading(bench: Bench) -> None:
    place = bench.user()
    await bench.take_token(place)
    with pytest.raises(TokenLost):
        await bench.hot.erase(place, GRACE, b"another")
    assert not bench.ask("EXISTS", place.hash)
