"""Silence: a server that does not answer a statement for longer than it lets one take.

PostgreSQL keeps the time-outs of statements itself: one that hangs keeps none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

_BYTES = 512 * 1024
"""What a slow link takes in a second; the server's time-out begins when it has the whole statement."""


class HangDetection:
    """For how long a server may go on saying nothing amid one transaction; between its statements, for ever."""

    def __init__(self, seconds: float) -> None:
        """`seconds` without an answer to a statement, or to the commit, are too many."""
        self._seconds = seconds
        self._ends = math.inf
        self._deaf = self._hears_one = False

    def seconds_left(self) -> float:
        """Seconds for which there is nothing to be told; 0 or less when it has been silent for too long."""
        return min(self._seconds, self._ends - time.monotonic())

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Tasks that begin in the block are heard."""
        token = _HEARD.set(self)
        try:
            yield
        finally:
            _HEARD.reset(token)

    def hear_one(self) -> None:
        """Hear only the next statement."""
        self._deaf, self._hears_one = False, True

    def asks(self, parameters: Any) -> None:
        """A statement goes to the server."""
        if self._deaf:
            return
        self._deaf = self._hears_one
        size = sum(len(one) for one in parameters if isinstance(one, (bytes, str)))
        self._ends = time.monotonic() + self._seconds + size / _BYTES

    def answered(self) -> None:
        """It has answered."""
        self._ends = math.inf

    def ends_it(self) -> None:
        """The transaction is committed, or taken back."""
        self._ends = time.monotonic() + self._seconds


_HEARD: ContextVar[HangDetection | None] = ContextVar("sessioncache_silence", default=None)


def hearing(engine: AsyncEngine) -> AsyncEngine:
    """The same engine under another handle, over which whoever hears a task hears the server; it stays as it is."""
    heard = engine.execution_options()
    event.listen(heard.sync_engine, "before_cursor_execute", _asks)
    event.listen(heard.sync_engine, "after_cursor_execute", _answered)
    event.listen(heard.sync_engine, "commit", _ends_it)
    event.listen(heard.sync_engine, "rollback", _ends_it)
    return heard


def hear_one() -> None:
    """Let whoever hears this task hear only the next statement of it: those that follow may take as long as they do."""
    silence = _HEARD.get()
    if silence is not None:
        silence.hear_one()


def _asks(*told: Any) -> None:
    silence = _HEARD.get()
    if silence is not None:
        silence.asks(told[3])


def _answered(*_: Any) -> None:
    silence = _HEARD.get()
    if silence is not None:
        silence.answered()


def _ends_it(_connection: Any) -> None:
    silence = _HEARD.get()
    if silence is not None:
        silence.ends_it()
