"""A worker that stops itself with SIGSTOP the first time it reaches a point: the command's options, and ``STOP_AT``.

``STOP_AT`` is ``claimed``, ``read`` (dirt is read, its transaction has not begun) or ``committed`` (not acknowledged).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from sessioncache_worker import worker
from sessioncache_worker.cli import main
from sessioncache_worker.flusher import Claimed, Flusher

from sessioncache.hot.messages import Large
from sessioncache.primitives.entries import Committed, Dirt


class StoppingFlusher(Flusher):
    """A flusher that stops its own process once."""

    _stopped = False

    def _reached(self, point: str) -> None:
        if point == os.environ["STOP_AT"] and not self._stopped:
            self._stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)

    async def look(self, claimed: Sequence[Claimed], most: int) -> list[Dirt | Large]:
        """Read dirt, after "claimed"."""
        self._reached("claimed")
        return await super().look(claimed, most)

    async def commit(self, batch: list[Dirt], read_after: int) -> list[Committed]:
        """Commit, between "read" and "committed"."""
        self._reached("read")
        committed = await super().commit(batch, read_after)
        self._reached("committed")
        return committed


if __name__ == "__main__":
    vars(worker)["Flusher"] = StoppingFlusher
    sys.exit(main())
