"""Run leases in Redis: one holder at a time for a life of a session.  One typed wrapper for the script.

Whoever runs under a lease writes with its token, and the script of the write compares it: a runner that was paused past
the end of its lease writes nothing, whatever it believes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sessioncache.hot.client import HotClient
from sessioncache.hot.idempotency import LIFETIME
from sessioncache.hot.layout import Place
from sessioncache.hot.scripts import load_script
from sessioncache.hot.signals import raise_unready


class Leases:
    """Takes, renews and gives back leases.  Each call may be repeated: a token is for one lease only."""

    def __init__(self, link: HotClient) -> None:
        self._link = link
        self._ending: set[asyncio.Task[None]] = set()

    def look_after(self, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a task of its own give a lease back, which the cancellation of its holder does not end."""
        task = asyncio.ensure_future(ending)
        # The event loop itself holds tasks only weakly.
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def aclose(self) -> None:
        """Stop giving leases back: those that are left expire."""
        ending = list(self._ending)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def take(self, place: Place, birth: bytes, token: bytes, seconds: float) -> float | None:
        """None: the lease is ours for so many seconds; else the seconds that its holder has left.  Gone, Unready."""
        reply = await self._call(b"take", place, birth, token, seconds)
        return int(reply[1]) / 1_000_000 if reply[0] == b"taken" else None

    async def renew(self, place: Place, birth: bytes, token: bytes, seconds: float) -> bool:
        """Whether the lease is still ours, for so many seconds from now.  Gone, Unready."""
        return (await self._call(b"renew", place, birth, token, seconds))[0] == b"ok"

    async def free(self, place: Place, birth: bytes, token: bytes) -> None:
        """Give the lease back, if it is still ours; a copy of the taking that arrives later takes nothing.  Unready."""
        await self._call(b"free", place, birth, token, 0)

    async def _call(self, action: bytes, place: Place, birth: bytes, token: bytes, seconds: float) -> list[bytes]:
        args = (action, birth, token, int(seconds * 1_000_000), LIFETIME)
        reply: list[bytes] = await self._link.call(load_script("lease"), [place.control, place.hash], args)
        raise_unready(reply, [place])
        return reply
