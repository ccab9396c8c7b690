"""A process that turns sessions on demand: one JSON command a line on stdin, one JSON answer a line on stdout.

``python -m benchmarks.turn.agent TIERS`` where TIERS is the JSON of `Tiers`.  It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from benchmarks.turn import plan
from benchmarks.turn.contender import Contender

_CHANGES_AT_ONCE = 32
Numbers = range
"""Of sessions."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Where the contenders' servers are."""

    redis: str
    database: str
    """Of the cache."""
    worked_redis: str = ""
    worked_database: str = ""
    """Of a cache whose worker runs."""
    postgresql: str = ""
    delayed: str = ""
    """The same through the proxy that delays replies."""
    connections: int = 64
    """Of each write-through contender."""


class Stretch(NamedTuple):
    """When it began and ended, in seconds of the clock that all processes share; CPU seconds of this process."""

    began: float
    ended: float
    cpu: float


async def connect(name: str, tiers: Tiers) -> Contender:
    """Open a contender by its name."""
    if name.startswith("ours"):
        from benchmarks.turn.ours import Ours

        return await Ours.connect(tiers.redis, tiers.database)
    if name.startswith("worked"):
        from benchmarks.turn.ours import Ours

        return await Ours.connect(tiers.worked_redis, tiers.worked_database)
    if name.startswith("write_through"):
        from benchmarks.turn.writethrough import WriteThrough

        url = tiers.delayed if name == "write_through_delay" else tiers.postgresql
        return await WriteThrough.connect(url, tiers.connections)
    if name == "limit":
        from benchmarks.turn.limit import Limit

        return await Limit.connect(tiers.redis)
    from benchmarks.turn.naive import Naive

    return Naive.over_msgspec(tiers.redis) if name == "naive_msgspec" else Naive.over_json(tiers.redis)


class Agent:
    """The contenders that were opened, and what can be done with them."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._contenders: dict[str, Contender] = {}

    async def answer(self, command: Mapping[str, Any]) -> Any:
        """Carry out one command."""
        arguments = dict(command)
        return await getattr(self, arguments.pop("do"))(**arguments)

    async def create(self, name: str, first: int = 0, last: int = plan.SESSIONS) -> None:
        """Bring sessions into being."""
        contender = await connect(name, self._tiers)
        await contender.create(range(first, last))
        await contender.aclose()

    async def open(self, name: str, first: int = 0, last: int = plan.SESSIONS) -> None:
        """Get ready to turn sessions, and turn each once."""
        self._contenders[name] = await connect(name, self._tiers)
        await self._contenders[name].open(range(first, last))
        await self.many(name, _CHANGES_AT_ONCE, first, last)

    async def change(self, name: str, first: int = 0, last: int = plan.SESSIONS) -> None:
        """Change all three scopes of each session."""
        await _shared_out(self._contenders[name].change, range(first, last), _CHANGES_AT_ONCE)

    async def alone(self, name: str, calls: int) -> float:
        """Turn so many sessions, one after another; the median in microseconds."""
        turn = self._contenders[name].turn
        gc.collect()
        taken: list[int] = []
        for number in range(calls):
            began = time.perf_counter_ns()
            await turn(number)
            taken.append(time.perf_counter_ns() - began)
        return median(taken) / 1_000

    async def collect(self) -> float:
        """Collect garbage, so that a stretch need not; the time by the clock that all processes share."""
        gc.collect()
        return time.monotonic()

    async def many(
        self, name: str, in_flight: int, first: int = 0, last: int = plan.SESSIONS, begin: float = 0
    ) -> Stretch:
        """Turn each session once, by so many tasks, from that time on."""
        await asyncio.sleep(begin - time.monotonic())
        began, used = time.monotonic(), time.process_time()
        await _shared_out(self._contenders[name].turn, range(first, last), in_flight)
        return Stretch(began, time.monotonic(), time.process_time() - used)

    async def steady(self, names: list[str], in_flight: int, warm: float, seconds: float) -> float:
        """Turns a second over some seconds, after some that do not count.

        Contenders take turns in passes over the sessions: with two of them each finds what the other one changed.
        """
        gc.collect()
        turns = [self._contenders[name].turn for name in names]
        begin = time.monotonic() + warm
        end = begin + seconds
        done = 0

        async def task(numbers: Numbers) -> None:
            nonlocal done
            passes = 0
            while True:
                turn = turns[passes % len(turns)]
                for number in numbers:
                    await turn(number)
                    now = time.monotonic()
                    if now >= end:
                        return
                    done += now >= begin
                passes += 1

        await asyncio.gather(*(task(range(n, plan.SESSIONS, in_flight)) for n in range(in_flight)))
        return done / seconds


async def _shared_out(call: Callable[[int], Awaitable[object]], numbers: Numbers, tasks: int) -> None:
    async def task(mine: Numbers) -> None:
        for number in mine:
            await call(number)

    await asyncio.gather(*(task(numbers[n::tasks]) for n in range(tasks)))


async def serve(tiers: Tiers) -> None:
    """Answer until stdin ends."""
    agent = Agent(tiers)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await agent.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(Tiers(**json.loads(sys.argv[1]))))
