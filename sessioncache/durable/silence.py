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
from sqlalchemy.ext.asyncio import AsyncConnection

_BYTES = 512 * 1024
"""What a slow link takes in a second; the server's time-out begins when it has the whole statement."""


class Silence:
    """For how long a server may go on saying nothing amid one transaction; between its statements, for ever."""

    def __init__(self, seconds: float) -> None:
        """`seconds` without an answer to a statement, or to the commit, are too many."""
        self._seconds = seconds
        self._ends = math.inf

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

    def hear(self, connection: AsyncConnection, *, first: bool) -> None:
        """Hear what goes over a connection for one transaction; its engine stays as it is.

        `first`: of its statements only the first.
        """
        target = connection.sync_connection
        event.listen(target, "before_cursor_execute", self._asks, once=first)
        event.listen(target, "after_cursor_execute", self._answered)
        event.listen(target, "commit", self._ends_it)
        event.listen(target, "rollback", self._ends_it)

    def _asks(self, _connection: Any, _cursor: Any, _statement: str, parameters: Any, *_: Any) -> None:
        size = sum(len(one) for one in parameters if isinstance(one, (bytes, str)))
        self._ends = time.monotonic() + self._seconds + size / _BYTES

    def _answered(self, *_: Any) -> None:
        self._ends = math.inf

    def _ends_it(self, _connection: Any) -> None:
        self._ends = time.monotonic() + self._seconds


_HEARD: ContextVar[Silence | None] = ContextVar("sessioncache_silence", default=None)


def listen(connection: AsyncConnection, *, first: bool = False) -> None:
    """Let whoever hears this task hear a transaction, if each of its statements is short, else the `first` of them."""
    silence = _HEARD.get()
    if silence is not None:
        silence.hear(connection, first=first)
