"""The floor that one writes in an afternoon: redis-py, hashes, one script; one call at a time per task."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks.turn import plan
from benchmarks.turn.contender import new_text

CONNECTIONS = 64
"""One for each task of the most that are in flight: no task waits for another's."""
INDEX = "plain:{000}:dirty"
"""The sorted set of what a worker would have to flush."""


class Naive:
    """Three pipelined HGETALL, every value decoded, one script."""

    def __init__(self, client: Redis, decode: Callable[[bytes], Any], encode: Callable[[Any], str | bytes]) -> None:
        self._client = client
        self._decode = decode
        self._encode = encode
        self._sha = ""

    @classmethod
    def over_json(cls, url: str) -> Self:
        """With the standard library's decoder, as naive code has it."""
        return cls(_client(url), json.loads, json.dumps)

    @classmethod
    def over_msgspec(cls, url: str) -> Self:
        """With the fastest decoder."""
        return cls(_client(url), msgspec.json.Decoder().decode, msgspec.json.Encoder().encode)

    async def create(self, numbers: Sequence[int]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for number in numbers:
                for name in plan.names(number):
                    pipeline.hset(name, mapping={key: json.dumps(value) for key, value in plan.initial().items()})
            await pipeline.execute()

    async def open(self, numbers: Sequence[int]) -> None:
        self._sha = await self._client.script_load(plan.SMALL_SCRIPT)

    async def change(self, number: int) -> object:
        return await self._write(number, plan.CHANGED)

    async def turn(self, number: int) -> object:
        async with self._client.pipeline(transaction=False) as pipeline:
            for name in plan.names(number):
                pipeline.hgetall(name)
            read = await pipeline.execute()
        decode = self._decode
        state = [{key.decode(): decode(value) for key, value in scope.items()} for scope in read]
        await self._write(number, plan.WRITTEN)
        return state

    async def aclose(self) -> None:
        await self._client.aclose()
        await self._client.connection_pool.aclose()

    async def _write(self, number: int, key: str) -> object:
        pair = (key, self._encode(new_text()))
        return await self._client.evalsha(self._sha, 4, *plan.names(number), INDEX, "1", *pair, *pair, *pair)


def _client(url: str) -> Redis:
    return Redis(connection_pool=BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None))
