"""A steady write load on hot sessions, and what comes of it while SQL is away."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from sessioncache import Session, SessionCache, SessionCacheError

_PAUSE = 0.005
"""Seconds between two writes of one session."""


@dataclass
class Load:
    """Writers, one a session, that each go round their keys with rising numbers until the block ends."""

    sessions: list[Session]
    keys: int
    written: int = 0
    errors: list[SessionCacheError] = field(default_factory=list)
    slowest: float = 0.0
    """Seconds of the slowest write."""

    @classmethod
    async def on(cls, cache: SessionCache, *, sessions: int, keys: int) -> Self:
        """A load on new sessions."""
        state = {f"k{key}": 0 for key in range(keys)}
        return cls([await cache.create(f"u{n}", session_id="s", state=state) for n in range(sessions)], keys)

    async def __aenter__(self) -> Self:
        self._stop = asyncio.Event()
        self._writers = [asyncio.ensure_future(self._write(session)) for session in self.sessions]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.gather(*self._writers)

    async def _write(self, session: Session) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            began = time.monotonic()
            try:
                await session.set(f"k{number % self.keys}", number)
                self.written += 1
            except SessionCacheError as error:
                self.errors.append(error)
            self.slowest = max(self.slowest, time.monotonic() - began)
            await asyncio.sleep(_PAUSE)
