"""What every peer does: the turn, and how many of them a second.

A turn reads three scopes (a session, its user, its app) of 10 keys of 100 bytes each, decodes all of them, and writes
one key in each.  Every session has a user of its own; all sessions share one app.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count as count_from
from typing import Protocol

PREFIXES = ("", "user:", "app:")
KEYS = 10
"""Of each scope."""
ALL_KEYS = len(PREFIXES) * KEYS
SESSIONS = 64
"""Of each round, however many are in flight: services that keep a list of events then keep short ones."""
WARM = 1.5
"""Seconds before the counting begins: longer than the flush delay, so that ours are counted while a worker writes."""


def text(turn: int) -> str:
    """A value of 100 bytes as JSON, another one each turn."""
    return f"{turn:098}"


def initial_state() -> dict[str, str]:
    """What a session begins with."""
    return {f"{prefix}key{number}": text(0) for prefix in PREFIXES for number in range(KEYS)}


def changes(turn: int) -> dict[str, str]:
    """What a turn writes: one key in each scope."""
    return {f"{prefix}key{turn % KEYS}": text(turn) for prefix in PREFIXES}


def turns(agent: int, in_flight: int) -> Iterator[tuple[int, int]]:
    """The turns of one agent: it goes round its share of the sessions; number of the session, number of its turn."""
    for turn in count_from(1):
        for number in range(agent, SESSIONS, in_flight):
            yield number, turn


class MissingStateError(Exception):
    """A reading did not bring all keys."""


def check(state: object) -> None:
    """Raise MissingStateError unless a turn read, and decoded, what it had to."""
    if not isinstance(state, dict) or len(state) != ALL_KEYS:
        raise MissingStateError(f"not {ALL_KEYS} keys")


class Peer(Protocol):
    """One way to do the turns of many sessions."""

    async def rate(self, in_flight: int, seconds: float) -> float:
        """Turns a second of fresh sessions, so many at once, after a while that does not count."""


class AsyncPeer:
    """A peer whose turn is a coroutine."""

    async def prepare(self, sessions: int) -> None:
        """Make sessions that nobody has used before."""
        raise NotImplementedError

    async def turn(self, number: int, turn: int) -> None:
        """One turn of the session of a number."""
        raise NotImplementedError

    async def rate(self, in_flight: int, seconds: float) -> float:
        """See Peer."""
        await self.prepare(SESSIONS)
        return await self.run(in_flight, seconds)

    async def run(self, in_flight: int, seconds: float) -> float:
        """Turns a second of sessions that are ready."""
        count = Count(seconds)

        async def agent(agent: int) -> None:
            for number, turn in turns(agent, in_flight):
                if count.over():
                    return
                await self.turn(number, turn)
                count.one()

        await asyncio.gather(*map(agent, range(in_flight)))
        return count.per_second()


class Count:
    """Counts what ends between the end of the warming up and the end of the round."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._from = time.perf_counter() + WARM
        self._to = self._from + seconds
        self._done = 0

    def over(self) -> bool:
        """Whether the round is over."""
        return time.perf_counter() >= self._to

    def one(self) -> None:
        """A turn has ended."""
        if self._from <= time.perf_counter() < self._to:
            self._done += 1

    def per_second(self) -> float:
        """Turns a second."""
        return self._done / self._seconds
