"""Listening in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from weakref import WeakKeyDictionary

from sessioncache.hot.subscriptions import Listener, Sink
from sessioncache.testing.store import MemoryStore


class MemoryListener(Listener):
    """Receives what one cache's store announces, whichever thread wrote it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._loops: WeakKeyDictionary[Sink, asyncio.AbstractEventLoop] = WeakKeyDictionary()
        self._in_use: Counter[Sink] = Counter()

    async def listen(self, sink: Sink, timeout: float) -> None:
        """Begin to listen."""
        with self._store.lock:
            self._loops[sink] = asyncio.get_running_loop()
            self._store.ears.add(self._pass_on)

    def leave(self, sink: Sink) -> None:
        """End to listen."""
        with self._store.lock:
            self._loops.pop(sink, None)
            if not self._loops:
                self._store.ears.discard(self._pass_on)

    async def catch_up(self) -> None:
        """What was announced before is on its way to this loop, and comes first."""
        await asyncio.sleep(0)

    async def drop_idle(self) -> None:
        """Nothing to close."""

    async def aclose(self) -> None:
        """End, and report that to whoever still listens."""
        for sink in list(self._loops):
            sink.closed()
            self.leave(sink)

    def _pass_on(self, channel: bytes, payload: bytes) -> None:
        for sink, loop in list(self._loops.items()):
            if channel in sink.channels:
                with suppress(RuntimeError):  # a loop that has ended receives nothing
                    loop.call_soon_threadsafe(sink.heard, channel, payload)
