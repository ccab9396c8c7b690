"""R5, R12 to R17 for namespaces: of one life of their session, pinned with it, and gone with it."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Wanted
from sessioncache.hot.signals import Dropped, Gone, Need, TokenLost, Unready
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import LARGEST, decode_revision, encode_revision
from tests.scripts.bench import IDLE, SECOND, START, Bench, put
from tests.scripts.spaces import load, take, with_dirty_namespaces, write


async def read(bench: Bench, place: Place) -> dict[str, bytes]:
    """The texts of a namespace, as a reader of the present life sees them."""
    _, content = await bench.hot.read([Wanted(bench.session(), []), Wanted(place)])
    return {key: value[9:] for key, value in content.entries.items()}


def listed(bench: Bench) -> set[bytes]:
    """The dirty namespaces that are listed of the session."""
    return set(bench.ask("SMEMBERS", bench.key(bench.session(), f"ns:{bench.session().ref.id}")))


async def forget(bench: Bench) -> None:
    """Redis may have forgotten something: all that is hot is of an older incarnation."""
    bench.fail_over(bench.replid + "b")
    await bench.register()


# ---- R15: pinned


async def test_a_session_is_pinned_while_a_namespace_of_it_is_dirty(bench: Bench) -> None:
    session = bench.session()
    one, two = await with_dirty_namespaces(bench, "one", "two")
    assert listed(bench) == {one.ref.member.encode(), two.ref.member.encode()}
    assert (bench.marks(session), bench.ttl(session.hash), bench.ttl(one.hash)) == (set(), None, None)
    await bench.flush(one)
    assert (bench.ttl(one.hash), bench.ttl(session.hash)) == (IDLE, None)
    await bench.flush(two)
    assert (bench.ttl(two.hash), bench.ttl(session.hash)) == (IDLE, IDLE)
    assert listed(bench) == set()


async def test_a_dirty_session_stays_pinned_when_its_namespace_is_flushed(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    await bench.flush(session)
    await load(bench, space)
    await write(bench, space, put("k", "1"))
    await bench.flush(space)
    assert (bench.ttl(space.hash), bench.ttl(session.hash)) == (IDLE, None)
    await bench.flush(session)
    assert bench.ttl(session.hash) == IDLE


async def test_a_write_to_a_namespace_pins_a_session_that_was_about_to_expire(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    await load(bench, space)
    await bench.flush(session)
    assert bench.ttl(session.hash) == IDLE
    await write(bench, space, put("k", "1"))
    bench.clock.move(IDLE + 1)
    assert await read(bench, space) == {"k": b"1"}


async def test_a_namespace_that_is_marked_by_itself_pins_its_session(bench: Bench) -> None:
    session = bench.session()
    (space,) = await with_dirty_namespaces(bench, "n")
    await bench.flush(space)
    assert await bench.merging.mark_stale(space)
    assert (bench.ttl(session.hash), bench.ttl(space.hash)) == (None, None)
    value = bench.field(space, "=k")
    assert await bench.merge(space, Entry("k", decode_revision(value[:9]), value[9:])) == 1
    assert (await bench.flush(space)).left == 0
    assert bench.ttl(session.hash) == IDLE


async def test_reading_gives_no_time_to_live_to_a_pinned_session(bench: Bench) -> None:
    (space,) = await with_dirty_namespaces(bench, "n")
    await bench.read(bench.session())
    assert await read(bench, space) == {"k": b"1"}
    assert (bench.ttl(bench.session().hash), bench.ttl(space.hash)) == (None, None)


async def test_a_revalidation_of_the_session_leaves_it_pinned_until_its_namespace_is_settled(bench: Bench) -> None:
    session = bench.session()
    (space,) = await with_dirty_namespaces(bench, "n")
    value = bench.field(space, "=k")
    await forget(bench)
    assert await bench.merge(session) == 0
    assert bench.ttl(session.hash) is None
    await bench.merge(space, Entry("k", decode_revision(value[:9]), value[9:]))
    assert (bench.ttl(session.hash), bench.ttl(space.hash), listed(bench)) == (IDLE, IDLE, set())


async def test_a_revalidation_keeps_the_dirt_of_a_namespace_that_sql_lacks(bench: Bench) -> None:
    (space,) = await with_dirty_namespaces(bench, "n")
    await forget(bench)
    await bench.merge(bench.session())
    assert await bench.merge(space, absent=True) == 1
    assert (bench.ttl(bench.session().hash), bench.ttl(space.hash)) == (None, None)
    assert (await bench.dirt(space)).entries[0].text == b"1"


async def test_a_namespace_that_redis_lost_holds_its_session_no_longer(bench: Bench) -> None:
    session = bench.session()
    lost, kept = await with_dirty_namespaces(bench, "lost", "kept")
    bench.ask("DEL", lost.hash, bench.key(session, f"d:{lost.ref.member}"))
    await bench.flush(kept)
    assert (bench.ttl(session.hash), listed(bench)) == (IDLE, set())
    assert await bench.backlog.read_dirt([(lost.ref.bucket, lost.ref.member)]) == [None]


async def test_a_session_that_is_loaded_again_beside_a_dirty_namespace_is_pinned(bench: Bench) -> None:
    session = bench.session()
    (space,) = await with_dirty_namespaces(bench, "n")
    birth = decode_revision(bench.field(session, "b"))
    bench.ask("DEL", session.hash)
    await bench.install(session, known=birth, birth=birth)
    assert bench.ttl(session.hash) is None
    await bench.flush(space)
    assert bench.ttl(session.hash) == IDLE


# ---- the session's head


async def test_a_write_to_a_namespace_moves_the_head_of_its_session_and_no_revision_of_its_values(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    created = await bench.create(session, put("a", "1"))
    await load(bench, space)
    await bench.flush(session)
    bench.clock.move(1)
    written = await write(bench, space, put("k", "1"))
    assert [bench.field(session, name) for name in "rhu"] == [written.revision] * 3
    assert bench.field(session, "v") == created.revision
    assert bench.marks(session) == {b"!"}
    assert bench.since(session) == bench.clock.micros
    (listed,) = await bench.unflushed("u", session)
    assert listed.head.updated == decode_revision(written.revision)


async def test_the_dirt_of_a_namespace_comes_with_the_head_of_its_session(bench: Bench) -> None:
    session = bench.session()
    (space,) = await with_dirty_namespaces(bench, "n")
    dirt = await bench.dirt(space)
    assert (dirt.head.session, dirt.head.revision) == ("s", decode_revision(bench.field(session, "r")))
    assert (dirt.rows_id, dirt.namespace, dirt.holder) == (session.ref.id, "n", session.ref.id)
    assert dirt.revision == decode_revision(bench.field(space, "r"))


async def test_an_acknowledgement_of_a_namespace_leaves_the_head_of_its_session_dirty(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    await bench.flush(session)
    await load(bench, space)
    await write(bench, space, put("k", "1"))
    await bench.flush(space)
    assert bench.marks(session) == {b"!"}
    await bench.flush(session)


async def test_a_write_is_above_the_revision_of_the_session_and_of_the_namespace(bench: Bench) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    ahead = START + 100 * SECOND
    await load(bench, space, Entry("old", ahead, b"1"))
    first = await write(bench, space, put("k", "1"))
    assert decode_revision(first.revision) == ahead + 1
    bench.clock.move(-60)
    second = await write(bench, space, put("k", "2"))
    assert decode_revision(second.revision) == ahead + 2
    own = await bench.write(session, put("a", "1"))
    assert decode_revision(own.revision) == ahead + 3


# ---- R5: of one life


async def reborn(bench: Bench) -> Place:
    """A clean namespace of a life that is over; the session lives again."""
    (space,) = await with_dirty_namespaces(bench, "n")
    await bench.flush(space)
    await bench.delete(bench.session())
    bench.clock.move(1)
    await bench.create(bench.session(), token=b"")
    return space


async def test_a_namespace_of_an_earlier_life_is_cold_for_reads_and_writes(bench: Bench) -> None:
    space = await reborn(bench)
    for call in (read(bench, space), write(bench, space, put("k", "2"))):
        with pytest.raises(Unready) as why:
            await call
        assert (why.value.need, why.value.places) == (Need.COLD, [space])


async def test_a_loader_drops_what_is_of_an_earlier_life(bench: Bench) -> None:
    space = await reborn(bench)
    taken = await take(bench, space)
    assert taken.birth == bench.field(bench.session(), "b")
    assert bench.ask("EXISTS", space.hash) == 0
    await load(bench, space, taken=taken)
    assert await read(bench, space) == {}


async def test_an_old_handle_writes_to_no_namespace_of_the_new_life(bench: Bench) -> None:
    session = bench.session()
    birth = (await bench.create(session)).revision
    await bench.delete(session)
    await bench.create(session, token=b"")
    space = bench.space()
    await load(bench, space)
    with pytest.raises(Gone):
        await write(bench, space, put("k", "old"), birth=birth)
    with pytest.raises(Gone):
        await bench.hot.read([Wanted(session, [], birth), Wanted(space)])


async def test_a_delete_drops_the_dirty_namespaces_at_once_and_tells_them(bench: Bench) -> None:
    session = bench.session()
    one, two = await with_dirty_namespaces(bench, "one", "two")
    await write(bench, two, put("l", "2"))
    deleted = await bench.hot.delete(session)
    assert deleted.namespaces == {"one": 1, "two": 2}
    for place in (one, two):
        assert bench.ask("EXISTS", place.hash) == 0
        assert (bench.marks(place), bench.due(place), bench.since(place)) == (set(), None, None)
    assert listed(bench) == set()


async def test_a_delete_drops_the_letters_of_its_namespaces(bench: Bench) -> None:
    (space,) = await with_dirty_namespaces(bench, "n")
    await bench.refuse(space, "k")
    assert bench.ask("HLEN", bench.key(space, "dead")) == 1
    await bench.delete(bench.session())
    assert bench.ask("HLEN", bench.key(space, "dead")) == 0


@pytest.mark.parametrize("change", ["deleted", "created again", "evicted", "of another incarnation", "flagged"])
async def test_nothing_is_installed_beside_a_session_that_has_changed_since_the_reading(
    bench: Bench, change: str
) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    await bench.flush(session)
    taken = await take(bench, space)
    bench.clock.move(1)
    if change in ("deleted", "created again"):
        await bench.delete(session)
    if change == "created again":
        await bench.create(session, token=b"")
    if change == "evicted":
        bench.ask("DEL", session.hash)
    if change == "of another incarnation":
        await forget(bench)
    if change == "flagged":
        bench.ask("HSET", session.hash, "y", "1")
    with pytest.raises(TokenLost):
        await load(bench, space, Entry("k", START, b"1"), taken=taken)
    assert bench.ask("EXISTS", space.hash) == 0


# ---- the session is not there


@pytest.mark.parametrize("change", ["cold", "revalidate", "gone"])
async def test_a_token_for_a_namespace_needs_its_session(bench: Bench, change: str) -> None:
    session = bench.session()
    await bench.create(session)
    await bench.flush(session)
    if change == "gone":
        await bench.delete(session)
        with pytest.raises(Gone):
            await bench.hot.take_token(bench.space())
        return
    await forget(bench)
    if change == "cold":
        bench.ask("DEL", session.hash)
    with pytest.raises(Unready) as why:
        await bench.hot.take_token(bench.space())
    assert (why.value.need, why.value.places) == (Need(change), [session])


@pytest.mark.parametrize("need", [Need.COLD, Need.REVALIDATE])
async def test_the_dirt_of_a_namespace_is_read_only_beside_its_session(bench: Bench, need: Need) -> None:
    session = bench.session()
    (space,) = await with_dirty_namespaces(bench, "n")
    if need is Need.COLD:
        saved = bench.ask("DUMP", session.hash)
        bench.ask("DEL", session.hash)
    else:
        bench.ask("HSET", session.hash, "y", "1")
    (why,) = await bench.backlog.read_dirt([(space.ref.bucket, space.ref.member)])
    assert isinstance(why, Unready)
    assert (why.need, [place.hash for place in why.places]) == (need, [session.hash])
    assert bench.marks(space) == {b"=k"}
    if need is Need.COLD:
        bench.ask("RESTORE", session.hash, 0, saved)
    else:
        bench.ask("HDEL", session.hash, "y")
    assert (await bench.dirt(space)).entries


async def another_life(bench: Bench) -> Place:
    """A dirty namespace of a life that a revalidation of its session has ended: SQL has a newer one."""
    session = bench.session()
    (space,) = await with_dirty_namespaces(bench, "n")
    await forget(bench)
    top = decode_revision(bench.field(session, "r")) + SECOND
    await bench.merge(session, birth=top, cleared=top - 1, revision=top, values_revision=top, updated=top)
    assert bench.ttl(session.hash) is None
    return space


async def test_the_dirt_of_a_life_that_is_over_is_dropped_and_holds_the_session_no_longer(bench: Bench) -> None:
    space = await another_life(bench)
    (found,) = await bench.backlog.read_dirt([(space.ref.bucket, space.ref.member)])
    assert isinstance(found, Dropped)
    assert bench.ask("EXISTS", space.hash) == 0
    assert (bench.marks(space), listed(bench)) == (set(), set())
    assert bench.ttl(bench.session().hash) is not None


async def test_a_revalidation_drops_a_namespace_of_a_life_that_is_over(bench: Bench) -> None:
    space = await another_life(bench)
    assert await bench.merging.take_tokens([space]) == [None]
    assert bench.ask("EXISTS", space.hash) == 0
    assert (bench.marks(space), listed(bench)) == (set(), set())
    assert bench.ttl(bench.session().hash) is not None


async def test_a_loader_drops_the_dirt_of_a_life_that_is_over(bench: Bench) -> None:
    space = await another_life(bench)
    await take(bench, space)
    assert (bench.marks(space), listed(bench)) == (set(), set())
    assert bench.ttl(bench.session().hash) is not None


# ---- R12: wholly hot, or not


async def test_a_namespace_is_cold_by_itself(bench: Bench) -> None:
    session = bench.session()
    await bench.create(session)
    for call in (read(bench, bench.space()), write(bench, bench.space(), put("k", "1"))):
        with pytest.raises(Unready) as why:
            await call
        assert (why.value.need, why.value.places) == (Need.COLD, [bench.space()])


async def test_each_namespace_that_comes_into_being_moves_the_mark_of_the_session(bench: Bench) -> None:
    session = bench.session()
    created = await bench.create(session)
    seen = [bench.field(session, "l")]
    for name in ("one", "two"):
        await load(bench, bench.space(name))
        seen.append(bench.field(session, "l"))
    assert seen[0] == created.revision
    assert len(set(seen)) == 3
    await bench.flush(session)
    bench.ask("DEL", session.hash)
    bench.clock.move(1)
    await bench.install(session, known=START + 5, birth=START)
    assert bench.field(session, "l") not in seen, "what was evicted may have namespaces that SQL has"


@pytest.mark.parametrize("behind", [0, 600])
async def test_the_first_write_to_an_empty_namespace_moves_the_mark_of_the_session(bench: Bench, behind: int) -> None:
    session, space = bench.session(), bench.space()
    await bench.create(session)
    bench.clock.move(-behind)
    await load(bench, space)
    before = bench.field(session, "l")
    written = await write(bench, space, put("k", "1"))
    assert bench.field(session, "r") == written.revision
    assert bench.field(session, "l") > before
    after = bench.field(session, "l")
    await write(bench, space, put("k", "2"))
    assert bench.field(session, "l") == after, "what is there already was listed"


async def test_r2_a_namespace_that_was_not_written_for_a_day_counts_as_changed_when_it_is_loaded(bench: Bench) -> None:
    await bench.create(bench.session())
    bench.clock.move(24 * 3_600)
    entry = Entry("k", START + 5, b"1")
    await load(bench, bench.space("n"), entry, known=START + 9)
    assert bench.field(bench.space("n"), "v") == encode_revision(START + 5)
    bench.clock.move(0.000_006)
    await load(bench, bench.space("other"), entry, known=START + 9)
    assert bench.field(bench.space("other"), "v") == encode_revision(START + 9)
    assert await read(bench, bench.space("other")) == {"k": b"1"}


async def test_r14_a_namespace_of_a_living_session_is_never_dropped(bench: Bench) -> None:
    await bench.create(bench.session())
    await load(bench, bench.space())
    await write(bench, bench.space(), put("k", "1"))
    assert await bench.backlog.scrub(bench.space(), LARGEST) is False
    assert await read(bench, bench.space()) == {"k": b"1"}


async def test_a_namespace_whose_session_was_deleted_since_its_claim_is_not_told_as_lost(bench: Bench) -> None:
    (space,) = await with_dirty_namespaces(bench, "one")
    assert space.ref.member in await bench.claim(bucket=space.ref.bucket, everything=True)
    await bench.delete(bench.session())
    (found,) = await bench.backlog.read_dirt([(space.ref.bucket, space.ref.member)])
    assert isinstance(found, Dropped)
