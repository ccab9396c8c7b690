"""google-adk's session services, for state alone: an event that bears nothing but a change of state, no events read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.peer import AsyncPeer, changes, check, initial_state
from benchmarks.peers.stage import Stage

_CONNECTIONS = 64


class AdkService(AsyncPeer):
    """Either service."""

    def __init__(self, service: Any) -> None:
        from google.adk.sessions.base_session_service import GetSessionConfig

        self.service = service
        self._config = GetSessionConfig(num_recent_events=0)
        self._round = 0

    @classmethod
    @asynccontextmanager
    async def sql(cls, stage: Stage) -> AsyncIterator[AdkService]:
        """DatabaseSessionService on PostgreSQL through asyncpg, without the ping before each use of a connection."""
        from google.adk.sessions import DatabaseSessionService

        url = stage.database().replace("postgresql://", "postgresql+asyncpg://", 1)
        async with DatabaseSessionService(url, pool_pre_ping=False, pool_size=_CONNECTIONS) as service:
            yield cls(service)

    @classmethod
    @asynccontextmanager
    async def redis(cls, stage: Stage) -> AsyncIterator[AdkService]:
        """RedisSessionService."""
        from google.adk.integrations.redis import RedisSessionService
        from redis.asyncio import BlockingConnectionPool, Redis

        # A plain pool refuses 64 turns at once, each of which asks for three connections.
        pool = BlockingConnectionPool.from_url(stage.redis.url, decode_responses=True, max_connections=_CONNECTIONS)
        async with Redis.from_pool(pool) as client:
            yield cls(RedisSessionService(redis_client=client))

    async def prepare(self, sessions: int) -> None:
        """See AsyncPeer."""
        self._round += 1
        for number in range(sessions):
            await self.create(number, initial_state())

    async def create(self, number: int, state: dict[str, str]) -> None:
        """A session."""
        await self.service.create_session(**self._names(number), state=state)

    async def get(self, number: int) -> Any:
        """A session with its merged state."""
        return await self.service.get_session(**self._names(number), config=self._config)

    async def change(self, session: Any, delta: dict[str, str]) -> None:
        """Write some keys."""
        from google.adk.events import Event, EventActions

        await self.service.append_event(session, Event(author="agent", actions=EventActions(state_delta=delta)))

    async def turn(self, number: int, turn: int) -> None:
        """See AsyncPeer."""
        session = await self.get(number)
        check(session.state)
        await self.change(session, changes(turn))

    def _names(self, number: int) -> dict[str, str]:
        return {"app_name": f"app{self._round}", "user_id": f"u{number}", "session_id": f"s{number}"}
