"""The fleet: runs the sessions of a file in many processes while workers flush, and are killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessioncache.hot.backlog import Backlog
from sessioncache.replay.processes import AgentProcess, ReplayFailedError, WorkerProcess
from sessioncache.replay.recording import Recording

LEASE = 3.0
"""Seconds of the replay's workers' leases: so long a killed worker's claims wait."""
FLUSH_DELAY = 0.2
WORKERS = 2
_IN_FLIGHT = 8
"""Sessions that one agent process runs at once."""
_LONGEST_HUNT = 120.0
"""Seconds without a kill after which the hunt is given up."""


@dataclass(slots=True)
class Figures:
    """What the agents have reported."""

    sessions: int = 0
    turns: int = 0
    entries: int = 0
    mismatches: int = 0
    writes: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    worker_kills: int = 0
    seconds: float = 0.0
    repeats: int = 0


class Fleet:
    """Agent and worker processes over one pair of tiers."""

    def __init__(
        self,
        recordings: Sequence[Recording],
        options: dict[str, Any],
        backlog: Backlog,
        buckets: Sequence[int],
        advanced: Callable[[Figures], None],
    ) -> None:
        self._recordings = recordings
        self._options = options
        self._backlog = backlog
        self._buckets = buckets
        self._advanced = advanced
        self._agents: list[AgentProcess] = []
        self.workers: list[WorkerProcess] = []
        self._queues: list[list[tuple[int, int, int]]] = []
        self._in_flight: list[int] = []
        self._left = 0
        self._passed = asyncio.Event()
        self._error: str | None = None
        self.figures = Figures()

    async def run(self, processes: int, kills: int, repeats: int) -> Figures:
        """Run at least `repeats` passes over the file, and more until `kills` workers have been killed."""
        loop = asyncio.get_running_loop()
        try:
            self.workers = [await self._start_worker() for _ in range(WORKERS)]
            for number in range(processes):
                self._agents.append(await AgentProcess.start(self._options, self._heard_from(number)))
                self._queues.append([])
                self._in_flight.append(0)
            began = loop.time()
            hunt = asyncio.ensure_future(self._hunt(kills))
            try:
                while self.figures.repeats < repeats or not hunt.done():
                    await self._pass(self.figures.repeats)
                    self.figures.repeats += 1
                await hunt
            finally:
                hunt.cancel()
                await asyncio.gather(hunt, return_exceptions=True)
            self.figures.seconds = loop.time() - began
            for agent in self._agents:
                await agent.finish()
        finally:
            for agent in self._agents:
                agent.kill()
        return self.figures

    async def stop_workers(self) -> None:
        """Let the workers finish what they have claimed, and end."""
        await asyncio.gather(*(worker.stop(30) for worker in self.workers))

    async def _start_worker(self) -> WorkerProcess:
        redis_url, database_url = self._options["redis"], self._options["database"]
        given = {name: self._options[name] for name in ("prefix", "buckets")}
        return await WorkerProcess.start(redis_url, database_url, lease=LEASE, flush_delay=FLUSH_DELAY, **given)

    # ---- agents

    async def _pass(self, repeat: int) -> None:
        """One pass over the file: sessions of one user start in different processes at the same time."""
        self._passed.clear()
        self._left = len(self._recordings)
        order = sorted(range(len(self._recordings)), key=lambda i: self._recordings[i].user)
        for place, index in enumerate(order):
            self._queues[place % len(self._agents)].append((index, repeat, 0))
        for number in range(len(self._agents)):
            self._feed(number)
        await self._passed.wait()
        if self._error:
            raise ReplayFailedError(self._error)

    def _feed(self, number: int) -> None:
        queue = self._queues[number]
        while queue and self._in_flight[number] < _IN_FLIGHT:
            index, repeat, half = queue.pop(0)
            self._in_flight[number] += 1
            self._agents[number].tell({"recording": index, "repeat": repeat, "half": half})

    def _heard_from(self, number: int) -> Callable[[dict[str, Any]], None]:
        def heard(report: dict[str, Any]) -> None:
            if "failed" in report:
                self._error = str(report["error"])
                self._passed.set()
                return
            self._in_flight[number] -= 1
            self._count(report)
            index, repeat, half = report["done"]
            if half == 0:
                # Halfway each session moves to another process.
                following = (number + 1) % len(self._agents)
                self._queues[following].append((index, repeat, 1))
                self._feed(following)
            else:
                self.figures.sessions += 1
                self._left -= 1
            self._feed(number)
            self._advanced(self.figures)
            if not self._left:
                self._passed.set()

        return heard

    def _count(self, report: dict[str, Any]) -> None:
        figures = self.figures
        figures.turns += report["turns"]
        figures.entries += report["entries"]
        figures.mismatches += report["mismatches"]
        figures.writes += report["writes"]
        figures.reads += report["reads"]

    # ---- kills

    async def _hunt(self, kills: int) -> None:
        """Kill workers that hold a claim, and replace them."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while self.figures.worker_kills < kills:
            await asyncio.sleep(random.uniform(0.02, 0.1))
            place = random.randrange(len(self.workers))
            if await self._kill_if_it_holds(self.workers[place]):
                self.figures.worker_kills += 1
                self.workers[place] = await self._start_worker()
                self._advanced(self.figures)
                last = loop.time()
            elif loop.time() - last > _LONGEST_HUNT:
                raise ReplayFailedError(f"no worker held a claim for {_LONGEST_HUNT:g} s: is another worker faster?")

    async def _kill_if_it_holds(self, worker: WorkerProcess) -> bool:
        """A worker that is stopped keeps its claims: they are read only then."""
        if not worker.alive:
            raise ReplayFailedError("a worker process has ended by itself")
        worker.pause()
        try:
            holders = await self._backlog.claims_of(self._buckets)
            if any(worker.is_named(name) for name in holders):
                await worker.kill()
                return True
        finally:
            if worker.alive:
                worker.resume()
        return False
