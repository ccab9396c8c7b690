"""One process of a herd: at each line on stdin it gets one session many times at once, and tells how often it read SQL.

``python -m tests.client.herd REDIS_URL DATABASE_URL``
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from sessioncache.durable.tier import DurableTier
from sessioncache.primitives.entries import StoredScope
from sessioncache.primitives.scopes import ScopeKind, ScopeRef
from tests.helpers import Urls, connect

CALLS = 125


class Counted(DurableTier):
    """Counts the sessions that are read."""

    sessions = 0

    async def read_scopes(self, wanted: Sequence[tuple[ScopeRef, str]]) -> list[StoredScope]:
        """Read them."""
        Counted.sessions += sum(ref.kind is ScopeKind.SESSION for ref, _ in wanted)
        return await super().read_scopes(wanted)


async def main() -> None:
    """Serve until stdin ends."""
    loop = asyncio.get_running_loop()
    async with connect(Urls(*sys.argv[1:3]), timeout=30) as cache:
        cache._tiers.durable.__class__ = Counted
        print("ready", flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            before = Counted.sessions
            found = await asyncio.gather(*(cache.get("ada", "s1") for _ in range(CALLS)))
            assert all(dict(one.state) == {"a": 1, "user:u": 2, "app:v": 3} for one in found)
            print(Counted.sessions - before, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
