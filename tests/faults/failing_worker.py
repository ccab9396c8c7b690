"""A worker that stops or kills itself the first time it reaches a point of a flush: the command's options, and

``FAIL_AT``: ``claimed`` (nothing is read yet), ``read`` (its transaction has not begun), ``written`` (rows are written,
nothing is committed), ``committed``, ``acknowledging`` (the acknowledgement is about to be sent), ``half`` (a piece of
a large scope is acknowledged, and not all of it);
``FAIL_BY``: ``SIGSTOP`` or ``SIGKILL``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from sessioncache_worker import worker
from sessioncache_worker.cli import main
from sessioncache_worker.flusher import Claimed, Flusher

from sessioncache.durable import flushing
from sessioncache.hot.client import HotClient
from sessioncache.hot.messages import Large
from sessioncache.hot.scripts import Script
from sessioncache.primitives.entries import Committed, Dirt

POINTS = ("claimed", "read", "written", "committed", "acknowledging", "half")

_inner_flush = flushing.flush
_inner_call = HotClient.call_each
_failed: list[str] = []


def reached(point: str) -> None:
    """Fail here, if this is the point, and it is the first time."""
    if point == os.environ["FAIL_AT"] and not _failed:
        _failed.append(point)
        os.kill(os.getpid(), signal.Signals[os.environ["FAIL_BY"]])


async def flush(*args: Any, **kwargs: Any) -> Any:
    """The rows and heads of a transaction are written; it is not committed."""
    result = await _inner_flush(*args, **kwargs)
    reached("written")
    return result


async def call_each(self: HotClient, script: Script, calls: Sequence[tuple[Sequence[bytes], Sequence[Any]]]) -> Any:
    """Scripts; of an acknowledgement the pieces that are not the last one are marked by a dash."""
    replies = await _inner_call(self, script, calls)
    if script.name == "ack" and any(b"-" in args for _, args in calls):
        reached("half")
    return replies


class FailingFlusher(Flusher):
    """A flusher with points."""

    async def look(self, claimed: Sequence[Claimed], most: int) -> list[Dirt | Large]:
        """Read dirt, after "claimed"."""
        reached("claimed")
        return await super().look(claimed, most)

    async def commit(self, batch: list[Dirt], read_after: int) -> list[Committed]:
        """Commit, between "read" and "committed"."""
        reached("read")
        committed = await super().commit(batch, read_after)
        reached("committed")
        return committed

    async def acknowledge(self, committed: list[Committed]) -> int:
        """Acknowledge, after "acknowledging"."""
        if committed:
            reached("acknowledging")
        return await super().acknowledge(committed)


if __name__ == "__main__":
    vars(worker)["Flusher"] = FailingFlusher
    vars(flushing)["flush"] = flush
    HotClient.call_each = call_each  # type: ignore[method-assign]
    sys.exit(main())
