"""Isolation: what cannot be committed is found in parts, put off for ever longer, and told (R10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import cast

import pytest
from sessioncache_worker import isolation
from sessioncache_worker.claims import Claimed, HeldClaims
from sessioncache_worker.isolation import Isolation

from sessioncache.durable.errors import RefusedDataError
from sessioncache.errors import DamagedValueError, DurableTierUnavailableError
from sessioncache.hot.backlog import Backlog
from tests.waiting import wait_until_async

SCOPES = [(number % 4, f"s{number}") for number in range(100)]


class World:
    """A database that fails at some scopes, and the claims that are moved."""

    def __init__(self, bad: Iterable[Claimed] = (), *, partial: bool = True) -> None:
        self.bad = set(bad)
        self.partial = partial
        self.refusing = False
        self.tried: list[list[Claimed]] = []
        self.flushed: list[Claimed] = []
        self.put_off: dict[Claimed, list[float]] = {}
        self.held_claims = HeldClaims(cast("Backlog", self), "w", 15.0)
        self.isolation = Isolation(self.flush, self.held_claims)

    async def renew(self, _worker: str, scopes: Sequence[Claimed], seconds: float) -> int:
        """As the backlog's."""
        for scope in scopes:
            self.put_off.setdefault(scope, []).append(seconds)
        return len(scopes)

    async def flush(self, scopes: Sequence[Claimed]) -> int:
        """As the flusher's."""
        self.tried.append(list(scopes))
        if self.bad & set(scopes):
            if self.refusing and len(scopes) > 1:
                raise RefusedDataError("refused")
            if not self.refusing:
                raise DurableTierUnavailableError("away", _partial=self.partial)
        self.flushed += scopes
        self.held_claims.done_with(scopes)
        return len(scopes)

    async def look_into(self, scopes: Sequence[Claimed], *, known: bool = False) -> None:
        """Look into scopes to the end."""
        self.held_claims.take(scopes)
        await self.isolation.look_into(scopes, known=known)
        await self.isolation.finished()


async def test_r10_parts_that_fail_are_cut_until_the_scope_to_blame_is_alone() -> None:
    world = World([SCOPES[7], SCOPES[70]])
    await world.look_into(SCOPES)
    assert sorted(world.flushed) == sorted(set(SCOPES) - world.bad), "all others, once"
    assert set(world.isolation.ailing()) == set(world.put_off) == world.bad
    assert world.isolation.take_error() is None
    assert len(world.tried) < 60
    assert world.isolation.rows == 98
    assert len(world.held_claims) == 0


async def test_r10_where_nothing_can_be_committed_the_outage_is_no_scopes() -> None:
    world = World(SCOPES)
    await world.look_into(SCOPES)
    assert len(world.tried) == 3
    assert isinstance(world.isolation.take_error(), DurableTierUnavailableError)
    assert world.isolation.take_error() is None, "it is told once"
    assert world.isolation.ailing() == {}
    assert {scope: len(times) for scope, times in world.put_off.items()} == dict.fromkeys(SCOPES, 1)
    assert not any(map(world.isolation.has, SCOPES))


async def test_r10_an_outage_of_the_whole_ends_a_search_at_once() -> None:
    world = World(SCOPES[:1], partial=False)
    await world.look_into(SCOPES[:1])
    assert isinstance(world.isolation.take_error(), DurableTierUnavailableError)
    assert (world.isolation.ailing(), list(world.put_off)) == ({}, SCOPES[:1])


async def test_r10_a_scope_that_keeps_failing_is_put_off_for_ever_longer_and_not_for_ever() -> None:
    world = World(SCOPES[:1])
    for _ in range(12):
        await world.look_into(SCOPES[:1], known=True)
    times = world.put_off[SCOPES[0]]
    assert times[0] <= 2 < times[5] <= 30
    assert max(times) <= 30
    assert world.isolation.ailing()[SCOPES[0]].attempts == 12
    world.bad.clear()
    await world.look_into(SCOPES[:1], known=True)
    assert world.isolation.ailing() == {}


async def test_r10_ailing_scopes_are_no_sign_of_an_outage_of_the_whole() -> None:
    world = World(SCOPES[:10])
    await world.look_into(SCOPES[:10], known=True)
    assert world.isolation.take_error() is None
    assert set(world.isolation.ailing()) == world.bad


async def test_r10_what_is_refused_as_data_is_tried_alone_in_the_end() -> None:
    world = World([SCOPES[7], SCOPES[70]])
    world.refusing = True
    await world.look_into(SCOPES)
    assert sorted(world.flushed) == sorted(SCOPES)
    assert [SCOPES[7]] in world.tried
    assert world.isolation.ailing() == {}


async def test_r10_what_others_have_taken_meanwhile_is_not_tried() -> None:
    world = World()
    world.held_claims.take(SCOPES[:2])
    world.held_claims.done_with(SCOPES[:1])
    await world.isolation.look_into(SCOPES[:2])
    await world.isolation.finished()
    assert world.flushed == SCOPES[1:2]


async def test_r10_a_batch_that_went_through_meanwhile_shows_that_it_is_no_outage_of_the_whole() -> None:
    world = World(SCOPES[:4])
    inner = world.flush

    async def flush(scopes: Sequence[Claimed]) -> int:
        world.isolation.went_through()
        return await inner(scopes)

    world.isolation._flush = flush
    await world.look_into(SCOPES[:4])
    assert world.isolation.take_error() is None
    assert set(world.isolation.ailing()) == world.bad


async def test_r10_a_scope_of_which_nothing_was_committed_is_not_told_as_flushed_again() -> None:
    world = World(SCOPES[:1])
    await world.look_into(SCOPES[:1], known=True)

    async def flush(_: Sequence[Claimed]) -> int:
        return 0

    world.isolation._flush = flush
    await world.look_into(SCOPES[:1], known=True)
    assert set(world.isolation.ailing()) == world.bad


async def test_r10_what_is_too_much_to_be_looked_into_is_put_off() -> None:
    world = World()
    many = [(0, f"s{number}") for number in range(2_003)]
    await world.look_into(many)
    assert sorted(world.flushed) == sorted(many[:2_000])
    assert list(world.put_off) == many[2_000:]


async def test_r10_what_the_database_refused_something_of_is_known_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.isolation.note_refusal(SCOPES[0])
    assert [world.isolation.knows(scope) for scope in SCOPES[:2]] == [True, False]
    assert world.isolation.ailing() == {}, "its good part is flushed"
    monkeypatch.setattr(isolation, "_REFUSED_LATELY", 0)
    assert not world.isolation.knows(SCOPES[0])


async def test_r10_those_that_were_refused_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_REFUSED_MOST", 2)
    world = World()
    for number in (0, 1, 0, 2):
        world.isolation.note_refusal(SCOPES[number])
    assert [world.isolation.knows(scope) for scope in SCOPES[:3]] == [True, False, True]


@pytest.mark.parametrize("parts", ["a large scope", "a batch that failed", "one that was refused something"])
async def test_r10_what_is_sound_waits_for_nothing_that_takes_long(parts: str) -> None:
    world, sound = World(SCOPES[:2]), (1, "sound")
    await world.look_into(SCOPES[:2], known=True)
    world.isolation.note_refusal(SCOPES[2])
    if parts == "one that was refused something":
        world.isolation.note_refusal(sound)
    answer = asyncio.Event()

    async def slow(scopes: Sequence[Claimed]) -> int:
        if sound not in scopes:
            await answer.wait()
        return await world.flush(scopes)

    world.isolation._flush = slow
    busy = SCOPES[:2] if parts == "one that was refused something" else SCOPES[:3]
    world.held_claims.take([*busy, sound])
    await world.isolation.look_into(busy, known=True)
    await world.isolation.look_into([sound], known=parts != "a batch that failed")
    await wait_until_async(lambda: sound in world.flushed, 5, "the sound one is flushed")
    assert all(map(world.isolation.has, busy))
    answer.set()
    await world.isolation.finished()
    assert not any(map(world.isolation.has, [*busy, sound]))


async def test_r10_a_worker_that_ends_still_tries_what_was_refused_something() -> None:
    world = World(SCOPES[:1])
    await world.look_into(SCOPES[:1], known=True)
    world.isolation.note_refusal(SCOPES[1])
    world.held_claims.take(SCOPES[:2])
    await world.isolation.look_into(SCOPES[:2], known=True)
    world.isolation.wind_down()
    await world.isolation.finished()
    assert world.flushed == SCOPES[1:2]
    assert len(world.tried) == 2, "the ailing one before"


async def test_r10_a_search_that_fails_leaves_what_is_large_alone() -> None:
    world, large = World([SCOPES[0]], partial=False), (1, "large")
    answer = asyncio.Event()

    async def slow(scopes: Sequence[Claimed]) -> int:
        if large in scopes:
            await answer.wait()
        return await world.flush(scopes)

    world.isolation._flush = slow
    world.held_claims.take([SCOPES[0], large])
    await world.isolation.look_into([large], known=True)
    await world.isolation.look_into([SCOPES[0]])
    await wait_until_async(lambda: not world.isolation.has(SCOPES[0]), 5, "the search has ended")
    assert large not in world.put_off, "it is being flushed"
    answer.set()
    await world.isolation.finished()
    assert world.flushed == [large]


async def test_r10_what_was_set_apart_while_it_was_read_has_not_recovered() -> None:
    world = World()
    flush = world.isolation._flush

    async def meet_damage(scopes: Sequence[Claimed]) -> int:
        await world.isolation.set_apart(SCOPES[7], "damaged", is_damaged=True)
        return await flush(scopes)

    world.isolation._flush = meet_damage
    for attempts in (1, 2):
        await world.look_into([SCOPES[7]], known=True)
        assert world.isolation.ailing()[SCOPES[7]].attempts == attempts
    world.isolation._flush = flush
    await world.look_into([SCOPES[7]], known=True)
    assert world.isolation.ailing() == {}


async def test_r10_a_damaged_scope_is_found_in_parts_and_told() -> None:
    world = World()
    flush = world.isolation._flush

    async def fail(scopes: Sequence[Claimed]) -> int:
        if SCOPES[7] in scopes:
            raise DamagedValueError("damaged", key="", session_id="")
        return await flush(scopes)

    world.isolation._flush = fail
    await world.look_into(SCOPES)
    assert sorted(world.flushed) == sorted(set(SCOPES) - {SCOPES[7]})
    assert [(scope, one.is_damaged) for scope, one in world.isolation.ailing().items()] == [(SCOPES[7], True)]


async def test_what_cannot_be_flushed_for_one_cause_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World(SCOPES[40:60])
    with caplog.at_level(logging.WARNING, "sessioncache_worker"):
        await world.look_into(SCOPES)
        await world.look_into(SCOPES[40:60], known=True)
        (line,) = caplog.messages
        assert line.startswith("20 scopes cannot be flushed for now (such as s")
        world.bad.clear()
        await world.look_into(SCOPES[40:60], known=True)
    assert caplog.messages[1:] == ["no scope is left that could not be flushed"]
