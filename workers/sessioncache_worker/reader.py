"""Reading ahead: while SQL commits a batch, what comes after it is read, as far as one more batch goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from sessioncache.entries import Dirt
from sessioncache_worker.batch import batches, size_of

C = TypeVar("C")

_STEP = 128
"""Scopes that are read at once: SQL gets its first batch after so many."""


class Reader(Generic[C]):
    """The dirt of claimed scopes in batches: each is what has been read by the time it is asked for."""

    def __init__(
        self, read: Callable[[Sequence[C]], Awaitable[list[Dirt]]], claimed: Sequence[C], *, rows: int, size: int
    ) -> None:
        """`rows` and `size` (bytes): after so many it waits until some are taken; the latter also bounds a batch."""
        self._read = read
        self._claimed = claimed
        self._enough = rows
        self._size = size
        self._found: list[Dirt] = []
        self._rows = self._bytes = 0
        """Of what was found and not taken."""
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reading = asyncio.ensure_future(self._read_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def take(self, rows: int) -> list[Dirt]:
        """What has been read, at most so many rows; empty: there is no more.  Raises what reading raised."""
        while not self._found:
            if self._reading.done():
                await self._reading
                return []
            await self._change()
        batch = next(batches(self._found, rows=rows, size=self._size))
        del self._found[: len(batch)]
        self._count(batch, -1)
        self._changed.set()
        return batch

    async def _read_all(self) -> None:
        try:
            for at in range(0, len(self._claimed), _STEP):
                while self._is_enough():
                    await self._change()
                found = await self._read(self._claimed[at : at + _STEP])
                self._found += found
                self._count(found, 1)
                self._changed.set()
        finally:
            self._changed.set()

    def _is_enough(self) -> bool:
        return self._rows >= self._enough or self._bytes >= self._size

    def _count(self, dirt: Sequence[Dirt], sign: int) -> None:
        for rows, size in map(size_of, dirt):
            self._rows += sign * rows
            self._bytes += sign * size

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
