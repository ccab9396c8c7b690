"""The public API of the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

from benchmarks.turn import plan
from benchmarks.turn.contender import new_text
from sessioncache import Session, SessionCache

_AT_ONCE = 32


class Ours:
    """Sessions of the cache: a refresh, all values decoded, an update."""

    def __init__(self, cache: SessionCache) -> None:
        self._cache = cache
        self._sessions: dict[int, Session] = {}

    @classmethod
    async def connect(cls, redis_url: str, database_url: str) -> Self:
        """Over URLs, on defaults."""
        return cls(await SessionCache.connect(redis_url, database_url, app="turns"))

    async def create(self, numbers: Sequence[int]) -> None:
        await _in_parts(numbers, self._create)

    async def open(self, numbers: Sequence[int]) -> None:
        await _in_parts(numbers, self._open)

    async def change(self, number: int) -> object:
        value = new_text()
        return await self._sessions[number].update({prefix + plan.CHANGED: value for prefix in plan.PREFIXES})

    async def turn(self, number: int) -> object:
        session = self._sessions[number]
        await session.refresh()
        state = dict(session.state)
        value = new_text()
        await session.update({prefix + plan.WRITTEN: value for prefix in plan.PREFIXES})
        return state

    async def aclose(self) -> None:
        await self._cache.aclose()

    async def _create(self, number: int) -> None:
        cache = self._cache.bound_to(app=f"app{number}")
        await cache.create(f"user{number}", session_id=f"session{number}", state=plan.initial_state())

    async def _open(self, number: int) -> None:
        cache = self._cache.bound_to(app=f"app{number}")
        self._sessions[number] = await cache.get(f"user{number}", f"session{number}")


async def _in_parts(numbers: Sequence[int], do: Callable[[int], Awaitable[None]]) -> None:
    for first in range(0, len(numbers), _AT_ONCE):
        await asyncio.gather(*map(do, numbers[first : first + _AT_ONCE]))
