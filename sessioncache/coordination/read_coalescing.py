"""Read coalescing: scopes that are asked for while others are being read from SQL share one transaction.

Many cold sessions at once, after a failover for example, would otherwise take a connection each (a thundering herd).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from typing import TYPE_CHECKING, NamedTuple

from sessioncache.durable.messages import FencedOff
from sessioncache.errors import DurableTierUnavailableError
from sessioncache.primitives.deadline import deadline, within
from sessioncache.primitives.entries import StoredScope
from sessioncache.primitives.scopes import ScopeRef

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

_AT_ONCE = 4
"""Transactions at the same time; the other connections are left for other calls."""
_MOST = 32
"""Scopes of one transaction."""
_TO_END = 1.0
"""Seconds that transactions have to end when the cache is closed."""


class _Wanted(NamedTuple):
    ref: ScopeRef
    incarnation: str
    until: float
    answer: asyncio.Future[StoredScope]


class ReadCoalescing:
    """Reads scopes for many callers at once, each under the incarnation that its token bears."""

    def __init__(self, durable: DurableTier) -> None:
        self._durable = durable
        self._waiting: deque[_Wanted] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, ref: ScopeRef, incarnation: str) -> StoredScope:
        """What SQL has of a scope, in a snapshot that is taken after the call.

        FencedOff where the scope's fence names another incarnation; DurableTierUnavailableError, also where no
        connection is free before the caller's deadline.
        """
        loop = asyncio.get_running_loop()
        wanted = _Wanted(ref, incarnation, deadline(), loop.create_future())
        self._waiting.append(wanted)
        if self._running < _AT_ONCE:
            self._running += 1
            # In an empty context: the deadline of this caller is not that of the others, each gives up for itself.
            task = loop.create_task(self._run(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout_at(wanted.until):
                return await wanted.answer
        except TimeoutError:
            raise DurableTierUnavailableError("the SQL database did not answer in time") from None

    async def aclose(self) -> None:
        """Cancel what is under way, which gives its connections back."""
        running = list(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_TO_END)

    async def _run(self) -> None:
        try:
            while part := self._next():
                await self._read(part)
        finally:
            # Before the loop calls the task done: whoever asks in between must not rely on it.
            self._running -= 1

    def _next(self) -> list[_Wanted]:
        part: list[_Wanted] = []
        while self._waiting and len(part) < _MOST:
            one = self._waiting.popleft()
            # A caller that gave up meanwhile costs nothing any more.
            if not one.answer.done():
                part.append(one)
        return part

    async def _read(self, part: Sequence[_Wanted]) -> None:
        try:
            # As long as the most patient of the callers waits; the others give up by themselves.
            with within(max(one.until for one in part) - asyncio.get_running_loop().time()):
                found = await self._durable.read_scopes([(one.ref, one.incarnation) for one in part])
        except FencedOff as fenced:
            # The transaction has read nothing for the others either: they are in the next one, before those that came
            # later.
            self._waiting.extendleft(one for one in part if one.ref.bucket not in fenced.buckets)
            _fail([one for one in part if one.ref.bucket in fenced.buckets], fenced)
        except asyncio.CancelledError:
            for one in part:
                one.answer.cancel()
            raise
        except Exception as error:
            if len(part) == 1 or isinstance(error, DurableTierUnavailableError):
                _fail(part, error)
            else:  # a scope that cannot be read fails alone
                for one in part:
                    await self._read([one])
        else:
            for one, stored in zip(part, found, strict=True):
                if not one.answer.done():
                    one.answer.set_result(stored)


def _fail(part: Sequence[_Wanted], error: Exception) -> None:
    for one in part:
        if not one.answer.done():
            one.answer.set_exception(error)
