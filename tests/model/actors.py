"""Agents and workers whose calls advance one atomic step at a time: one script, or one SQL transaction.

Every exchange with Redis and every call of the durable tier waits at a gate until the test lets it through.  So any
call of the real code can be held between any two of its steps, and a crash is a call that is never let through again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from redis.asyncio import Redis
from sessioncache_worker import FlushWorker
from sqlalchemy.ext.asyncio import AsyncEngine

from sessioncache import SessionCache
from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.tier import DurableTier
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.hot.errors import unanswered
from sessioncache.settings import CacheSettings, WorkerSettings
from tests.fake_link import FakeLink
from tests.model.observing import APP, BUCKETS, PREFIX

_HOT = ("_send",)
_READING = (
    "clock",
    "read_layout",
    "read_fences",
    "named_by_fences",
    "read_scopes",
    "read_changes",
    "evidence",
    "list_sessions",
    "session_revisions",
)
_DURABLE = (*_READING, "record_layout", "swap_fences", "flush", "rehearse")
_PATIENCE = 10.0
_WORKER = {
    "prefix": PREFIX, "buckets": BUCKETS, "flush_delay": 300.0, "lease": 600.0, "batch_rows": 4, "max_attempts": 2,
}  # fmt: skip

Step = Callable[..., Awaitable[Any]]


class SqlSwitch:
    """Whether the database can be reached."""

    away = False


class Gate:
    """Where the steps of one actor wait."""

    def __init__(self, switch: SqlSwitch) -> None:
        self._switch = switch
        self.waiting: list[asyncio.Future[None]] = []
        self.moved = asyncio.Event()
        self.open = True
        self.lose = ""
        """``hot`` or ``sql``: the next answer of that tier does not arrive, though the step is done."""
        self._dead = False
        self._busy = 0

    def attach(self, tiers: Tiers) -> None:
        """Let all that these tiers do go through this gate."""
        for tier, target, names in (("hot", tiers.link, _HOT), ("sql", tiers.durable, _DURABLE)):
            for name in names:
                setattr(target, name, self._gated(tier, getattr(target, name)))

    @property
    def blocked(self) -> bool:
        """Whether nothing moves until a step is let through."""
        return bool(self.waiting) and not self._busy

    def let_through(self, which: int) -> None:
        """Let one of the waiting steps be done."""
        self._busy += 1  # before it goes on: nothing else may pass for the end of the step
        self.waiting.pop(which % len(self.waiting)).set_result(None)

    def close_for_ever(self) -> None:
        """The process is gone: nothing of it has an effect any more."""
        self._dead = True
        for step in self.waiting:
            step.cancel()
        self.waiting.clear()

    def _gated(self, tier: str, call: Step) -> Step:
        async def through(*args: Any, **kwargs: Any) -> Any:
            await self._wait()
            try:
                if tier == "sql" and self._switch.away:
                    raise DurableTierUnavailableError("the database is away")
                result = await call(*args, **kwargs)
            finally:
                self._busy -= 1
                self.moved.set()
            self._lose_answer(tier)
            return result

        return through

    async def _wait(self) -> None:
        """Returns with `_busy` counting the caller."""
        if self._dead:
            raise asyncio.CancelledError
        if self.open:
            self._busy += 1
            return
        step = asyncio.get_running_loop().create_future()
        self.waiting.append(step)
        self.moved.set()
        try:
            await step
        except asyncio.CancelledError:
            if step in self.waiting:
                self.waiting.remove(step)
            self._busy -= step.done() and not step.cancelled()
            raise
        if self._dead:
            self._busy -= 1
            raise asyncio.CancelledError

    def _lose_answer(self, tier: str) -> None:
        if self.lose == tier:
            self.lose = ""
            raise unanswered("lost") if tier == "hot" else DurableTierUnavailableError("lost")


class Actor:
    """A process with at most one call under way."""

    tiers: Tiers

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.task: asyncio.Task[Any] | None = None

    async def begin(self, call: Coroutine[Any, Any, Any]) -> None:
        """Begin a call, up to its first step."""
        self.gate.open = False
        self.task = asyncio.ensure_future(call)
        self.task.add_done_callback(lambda _: self.gate.moved.set())
        await self._settle()

    async def step(self, which: int = 0) -> bool:
        """Do one step of the call; whether the call is over."""
        if self.gate.waiting:
            self.gate.let_through(which)
        await self._settle()
        return self._task.done()

    async def crash(self) -> None:
        """End the process where it is."""
        self.gate.close_for_ever()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    @property
    def _task(self) -> asyncio.Task[Any]:
        assert self.task is not None
        return self.task

    async def _settle(self) -> None:
        gate = self.gate
        async with asyncio.timeout(_PATIENCE):
            while True:
                gate.moved.clear()
                if self._task.done() or gate.blocked:
                    return
                await gate.moved.wait()


class Agent(Actor):
    """A process that uses the cache."""

    def __init__(self, redis: Redis, engine: AsyncEngine, switch: SqlSwitch) -> None:
        super().__init__(Gate(switch))
        # Calls may be held for long: no deadline, no refusal for old dirt.
        settings = CacheSettings(prefix=PREFIX, buckets=BUCKETS, timeout=60.0, max_dirty_age=1e6)
        self.cache = SessionCache._over(Tiers(FakeLink(redis, owned=False), DurableTier(engine), settings), APP, "")
        self.tiers = self.cache._tiers
        self.gate.attach(self.tiers)


class Worker(Actor):
    """A process that flushes."""

    def __init__(self, redis: Redis, engine: AsyncEngine, switch: SqlSwitch) -> None:
        super().__init__(Gate(switch))
        link, durable = FakeLink(redis, owned=False), DurableTier(engine)
        self.worker = FlushWorker.over(link, durable, WorkerSettings.of(dict(_WORKER)))
        self.tiers = self.worker._tiers
        self.tiers.installation.checked = True
        self.troubled = False
        """Whether a tier was away, or an answer lost, in this round."""
        self.gate.attach(self.tiers)

    async def round(self) -> None:
        """Claim, read, commit, acknowledge: all that is dirty and not claimed by another."""
        claimed = await self.worker._claim(list(range(BUCKETS)), everything=True)
        await self.worker._flush(claimed)
