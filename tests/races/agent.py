"""An agent process for tests: opens a cache, then does what it is told, one JSON line a call, one JSON line a result.

``python -m tests.races.agent '[redis, database, settings]'``
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from sessioncache import Session, SessionCache, SessionCacheError


class Calls:
    """What an agent can be told to do; it keeps the handles of sessions it has got."""

    def __init__(self, cache: SessionCache) -> None:
        self._cache = cache
        self._handles: dict[tuple[str, str], Session] = {}

    async def create(self, user: str, session_id: str, state: dict[str, Any] | None = None) -> None:
        """Create a session and keep its handle."""
        self._handles[user, session_id] = await self._cache.create(user, session_id=session_id, state=state)

    async def get(self, user: str, session_id: str) -> dict[str, Any]:
        """Get a session anew; its merged state."""
        self._handles[user, session_id] = found = await self._cache.get(user, session_id)
        return dict(found.state)

    async def delete(self, user: str, session_id: str) -> bool:
        """Delete a session."""
        return await self._cache.delete(user, session_id)

    async def update(self, user: str, session_id: str, values: dict[str, Any], delete: list[str] | None = None) -> int:
        """Write through the kept handle."""
        return await self._handles[user, session_id].update(values, delete=delete or ())

    async def read(self, user: str, session_id: str, key: str) -> Any:
        """Read one key through the kept handle."""
        return await self._handles[user, session_id].get(key)

    async def list_ids(self, user: str | None = None) -> list[str]:
        """The ids of sessions."""
        return [one.id for one in (await self._cache.list(user, limit=None)).items]

    async def flush(self, timeout: float = 20) -> None:
        """Wait until all is durable."""
        await self._cache.flush(timeout)

    async def work(self, user: str, session_id: str, name: str, keys: int, increments: int) -> int:
        """Set distinct keys of session, user and app, one call a key, and increment one counter between."""
        found = await self._cache.get(user, session_id)
        counted = 0
        for number in range(increments):
            if number < keys:
                key = f"{name}-{number}"
                await found.update({key: number, f"user:{key}": number, f"app:{key}": number})
            counted = await found.increment("app:counter")
        return int(counted)


async def main() -> None:
    """Answer until stdin ends."""
    redis_url, database_url, settings = json.loads(sys.argv[1])
    loop = asyncio.get_running_loop()
    async with SessionCache.connect(redis_url, database_url, app="app", **{"timeout": 30.0, **settings}) as cache:
        calls = Calls(cache)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            call, arguments, named = json.loads(line)
            try:
                result = await getattr(calls, call)(*arguments, **named)
            except SessionCacheError as error:
                result = {"error": type(error).__name__, "message": str(error)}
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
