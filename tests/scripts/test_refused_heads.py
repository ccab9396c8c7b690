"""R10: a head that the database refuses rests with its whole scope; what else waits for it rests, too."""

from __future__ import annotations

import pytest

from sessioncache.hot.layout import Place
from sessioncache.hot.signals import Dropped
from sessioncache.primitives.revisions import LARGEST
from tests.scripts.bench import BUCKETS, Bench, put
from tests.scripts.spaces import with_dirty_namespaces, write
from tests.scripts.test_dead_letters import raw_letters, retrying


async def beheaded(bench: Bench, place: Place, attempts: int = 1) -> None:
    """The head of a scope becomes a dead letter."""
    dirt = await bench.dirt(place)
    assert await bench.backlog.record_failure(dirt, None, "why", attempts=attempts) is (attempts == 1)


async def session_with_space(bench: Bench) -> tuple[Place, Place]:
    """A session that SQL knows, and a namespace of it; both are dirty."""
    (space,) = await with_dirty_namespaces(bench, "n")
    await write(bench, space, put("n", "1"))
    return bench.session(), space


@pytest.mark.parametrize("kind", ["session", "user", "app"])
async def test_a_scope_whose_head_is_refused_rests_as_a_whole_until_it_is_written_anew(bench: Bench, kind: str) -> None:
    place = getattr(bench, kind)()
    if kind == "session":
        await bench.create(place, put("a", "1"))
    else:
        await bench.install(place)
        await bench.write(place, put("a", "1"))
    marks = bench.marks(place)
    await beheaded(bench, place)
    assert (bench.due(place), bench.since(place), bench.marks(place)) == (None, None, marks)
    assert bench.ttl(place.hash) is None
    (letter,) = await bench.letters.read(range(BUCKETS))
    assert (letter.is_head, letter.key, letter.attempts, letter.user) == (True, "", 1, "" if kind == "app" else "u")
    (state,) = await bench.hot.flush_state([place])
    assert (state.headless, state.dead, bench.due(place)) == (True, {}, None)
    bench.clock.move(1)
    await bench.write(place, put("b", "1"))
    assert {entry.key for entry in (await bench.dirt(place)).entries} == {"a", "b"}
    assert await bench.letters.read(range(BUCKETS)) == []
    assert (await bench.flush(place)).left == 0
    assert raw_letters(bench, place) == {}


async def test_a_head_that_is_refused_less_often_is_still_claimed(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    await beheaded(bench, place, attempts=2)
    assert bench.due(place) is not None
    assert await bench.letters.read(range(BUCKETS)) == []
    (state,) = await bench.hot.flush_state([place])
    assert not state.headless


async def test_a_head_that_has_changed_since_the_reading_is_not_accused(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place)
    dirt = await bench.dirt(place)
    bench.clock.move(1)
    await bench.write(place, put("a", "1"))
    assert not await bench.backlog.record_failure(dirt, None, "why", attempts=1)
    assert raw_letters(bench, place) == {}


@pytest.mark.parametrize("kind", ["session", "user", "app"])
async def test_a_head_that_another_worker_flushed_meanwhile_is_not_accused(bench: Bench, kind: str) -> None:
    place = getattr(bench, kind)()
    await (bench.create(place, put("a", "1")) if kind == "session" else bench.install(place))
    await bench.write(place, put("a", "2"))
    dirt = await bench.dirt(place)
    await bench.flush(place)
    assert not await bench.backlog.record_failure(dirt, None, "why", attempts=1)
    assert raw_letters(bench, place) == {}


async def test_a_head_that_nothing_but_letters_waits_for_is_not_accused(bench: Bench) -> None:
    place = bench.session()
    await bench.create(place, put("bad", "1"))
    dirt = await bench.dirt(place)
    await bench.refuse(place, "bad")
    assert bench.marks(place) == {b"=bad"}
    assert not await bench.backlog.record_failure(dirt, None, "why", attempts=1)
    assert [letter.is_head for letter in await bench.letters.read(range(BUCKETS))] == [False]


async def test_a_head_that_only_a_namespace_waits_for_is_accused(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.flush(session)
    assert bench.due(session) is None
    host = (await bench.dirt(space)).host
    assert await bench.backlog.record_failure(host, None, "why", attempts=1)
    assert await bench.letters.retry(session, b"!")
    await bench.flush(space)
    assert not await bench.backlog.record_failure(host, None, "why", attempts=1)


async def test_with_the_head_of_a_session_its_namespaces_rest_and_wake(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.backlog.record_failure((await bench.dirt(space)).host, None, "why", attempts=1)
    assert (bench.due(session), bench.due(space), bench.since(space)) == (None, None, None)
    (state,) = await bench.hot.flush_state([space])
    assert state.headless
    assert await bench.letters.retry(session, b"!")
    assert bench.due(session) == bench.due(space) == bench.since(space) == bench.clock.micros
    assert await retrying(bench) == [True]
    await bench.flush(space)
    await bench.flush(session)
    assert raw_letters(bench, session) == {}


async def test_a_retried_head_that_only_a_namespace_waits_for_goes_with_the_flush_of_that(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.flush(session)
    assert await bench.backlog.record_failure((await bench.dirt(space)).host, None, "why", attempts=1)
    assert await bench.letters.retry(session, b"!")
    assert await retrying(bench) == [True]
    await bench.flush(space)
    assert raw_letters(bench, session) == {}


async def test_what_wakes_the_head_of_a_session_wakes_its_namespaces_once_it_is_flushed(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.backlog.record_failure((await bench.dirt(space)).host, None, "why", attempts=1)
    bench.clock.move(1)
    await bench.write(session, put("a", "2"))
    assert bench.due(space) is None
    await bench.flush(session)
    assert bench.due(space) == bench.clock.micros


async def test_a_scope_that_was_claimed_before_its_head_died_is_not_read(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.backlog.record_failure((await bench.dirt(space)).host, None, "why", attempts=1)
    found = await bench.backlog.read_dirt([(one.ref.bucket, one.ref.member) for one in (session, space)])
    assert [type(one) for one in found] == [Dropped, Dropped]


async def test_what_is_scrubbed_takes_the_letter_on_its_head_and_its_namespaces_along(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.backlog.record_failure((await bench.dirt(space)).host, None, "why", attempts=1)
    assert await bench.backlog.scrub(session, LARGEST)
    assert raw_letters(bench, session) == {}
    assert bench.raw.exists(session.hash, space.hash) == 0


async def test_what_makes_a_head_suspect_goes_when_a_namespace_is_flushed_with_it(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.flush(session)
    dirt = await bench.dirt(space)
    assert not await bench.backlog.record_failure(dirt.host, None, "why", attempts=2)
    await bench.acknowledge(dirt)
    assert raw_letters(bench, space) == {}


# ---- records of namespaces


async def test_a_namespace_whose_record_is_refused_rests_alone_until_it_is_written_anew(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await beheaded(bench, space)
    assert (bench.due(space), bench.since(space), bench.marks(space)) == (None, None, {b"=k", b"=n"})
    assert bench.due(session) is not None
    (letter,) = await bench.letters.read(range(BUCKETS))
    assert (letter.is_head, letter.key, letter.namespace, letter.session) == (True, "", "n", "s")
    states = await bench.hot.flush_state([session, space])
    assert [state.headless for state in states] == [False, True]
    assert (await bench.flush(session)).left == 0
    (found,) = await bench.backlog.read_dirt([(space.ref.bucket, space.ref.member)])
    assert isinstance(found, Dropped)
    bench.clock.move(1)
    await write(bench, space, put("n", "2"))
    assert await bench.letters.read(range(BUCKETS)) == []
    assert (await bench.flush(space)).left == 0
    assert raw_letters(bench, space) == {}


async def test_the_record_of_a_namespace_is_flushed_again_on_command(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.flush(session)
    await beheaded(bench, space)
    bench.clock.move(1)
    assert await bench.letters.retry(space, b"!")
    assert (bench.due(space), bench.due(session)) == (bench.clock.micros, None)
    assert (await bench.flush(space)).left == 0


async def test_a_namespace_whose_record_is_refused_is_given_up_on_command_only(bench: Bench) -> None:
    session, space = await session_with_space(bench)
    await bench.flush(session)
    await beheaded(bench, space)
    assert not await bench.backlog.scrub(space, LARGEST)
    assert await bench.backlog.scrub(space, LARGEST, living=True)
    assert (raw_letters(bench, space), bench.raw.exists(space.hash), bench.raw.exists(session.hash)) == ({}, 0, 1)
    assert bench.ttl(session.hash) is not None
