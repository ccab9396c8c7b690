"""The loop guard: connections belong to one process and one event loop.  No I/O."""

from __future__ import annotations

import asyncio
import os

from sessioncache.errors import ConfigurationError


class LoopGuard:
    """Remembers the process, and the event loop, of a cache's first call."""

    __slots__ = ("_life", "_loop", "_remedy", "_what")

    def __init__(
        self, what: str = "this cache was opened", remedy: str = "open one here, connections cannot be shared"
    ) -> None:
        """`what` was done there, and `remedy`: what to do elsewhere; both are for the error."""
        self._what, self._remedy = what, remedy
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: object = None

    def check(self) -> None:
        """Raise ConfigurationError in another process or on another loop than those of the first call.

        Connections that two processes or two loops use would give each the other's replies, or hang.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop and self._life is _life:
            return
        if self._loop is None:
            self._loop, self._life = loop, _life
            return
        where = "on another event loop" if self._life is _life else "before this process was forked"
        raise ConfigurationError(f"{self._what} {where}: {self._remedy}")


_life: object = object()
"""Another object in every forked child; cheaper to compare than the process id."""


def _begin_life() -> None:
    global _life
    _life = object()


os.register_at_fork(after_in_child=_begin_life)
