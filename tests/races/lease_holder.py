"""A process that holds the lease of a session until it is ended.

``python -m tests.races.lease_holder REDIS DATABASE USER SESSION TTL``
"""

from __future__ import annotations

import asyncio
import sys

from sessioncache import SessionCache


async def main() -> None:
    """Say "held" once the lease is."""
    redis_url, database_url, user, session_id, ttl = sys.argv[1:]
    async with SessionCache.connect(redis_url, database_url, app="app", timeout=30.0) as cache:
        session = await cache.get(user, session_id)
        async with session.lease(float(ttl)):
            print("held", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
