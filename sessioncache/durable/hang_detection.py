"""Hang detection: a server that does not answer a statement for longer than it lets one take.

PostgreSQL enforces the time-outs of statements itself: a server that hangs does not.
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
"""Bytes that a slow network transfers in a second; the server's time-out begins when it has the whole statement."""


class HangDetection:
    """How long a server may be silent within a transaction; between its statements it may be silent for ever."""

    def __init__(self, seconds: float) -> None:
        """`seconds` without an answer to a statement, or to the commit, are too many."""
        self._seconds = seconds
        self._ends = math.inf
        self._deaf = self._hears_one = False

    def seconds_left(self) -> float:
        """Seconds until there is something to check; 0 or less when the server has been silent for too long."""
        return min(self._seconds, self._ends - time.monotonic())

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Statements of tasks that begin in the block are observed."""
        token = _HEARD.set(self)
        try:
            yield
        finally:
            _HEARD.reset(token)

    def hear_one(self) -> None:
        """Observe only the next statement."""
        self._deaf, self._hears_one = False, True

    def asks(self, parameters: Any) -> None:
        """A statement is sent to the server."""
        if self._deaf:
            return
        self._deaf = self._hears_one
        size = sum(len(one) for one in parameters if isinstance(one, (bytes, str)))
        self._ends = time.monotonic() + self._seconds + size / _BYTES

    def answered(self) -> None:
        """The server has answered."""
        self._ends = math.inf

    def ends_it(self) -> None:
        """The transaction is committed, or rolled back."""
        self._ends = time.monotonic() + self._seconds


_HEARD: ContextVar[HangDetection | None] = ContextVar("sessioncache_silence", default=None)


def hearing(engine: AsyncEngine) -> AsyncEngine:
    """The same engine under another handle, whose statements can be observed; the engine itself stays as it is."""
    heard = engine.execution_options()
    event.listen(heard.sync_engine, "before_cursor_execute", _asks)
    event.listen(heard.sync_engine, "after_cursor_execute", _answered)
    event.listen(heard.sync_engine, "commit", _ends_it)
    event.listen(heard.sync_engine, "rollback", _ends_it)
    return heard


def hear_one() -> None:
    """Let whoever observes this task observe only its next statement: those that follow may take as long as they do."""
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
