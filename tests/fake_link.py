"""A link to fakeredis, which has no transport to take over: each exchange has a connection to itself."""

from __future__ import annotations

import asyncio

from redis.exceptions import ResponseError

from sessioncache.hot.client import HotClient, Reply, drop
from sessioncache.hot.errors import unanswered
from sessioncache.primitives.deadline import attempt_deadline


class FakeLink(HotClient):
    """Behaves like the link over one connection, without sharing any."""

    async def _send(self, packed: list[bytes], replies: int, *, is_large: bool = False) -> list[Reply]:
        connection = await self.connect()
        try:
            async with asyncio.timeout_at(attempt_deadline()):
                await connection.send_packed_command(packed, check_health=False)
                return [await self._reply(connection) for _ in range(replies)]
        except (ConnectionError, TimeoutError) as error:
            raise unanswered(f"no answer from Redis: {type(error).__name__}") from error
        finally:
            await drop(connection)

    @staticmethod
    async def _reply(connection: object) -> Reply:
        try:
            return await connection.read_response(disable_decoding=True)  # type: ignore[attr-defined]
        except ResponseError as error:
            return error
