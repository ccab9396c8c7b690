"""Reading ahead: while SQL commits a batch, what comes after it is read, up to one more batch.

Small scopes are read many at a time; of a large one only the size is read first, and the scope itself with few others,
when there is room for it.  So no more is read and waiting than two batches, or a batch and the largest scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from sessioncache.hot.backlog import ANY_SIZE
from sessioncache.hot.messages import Large
from sessioncache.primitives.entries import Dirt
from sessioncache_worker.batch import batches, size_of

Scope = tuple[int, str]
"""Bucket and member of a scope."""

_STEP = 128
"""Scopes that are read at once: SQL gets its first batch after so many."""
_SMALL, _AT_ONCE = 32 * 1024, 1024 * 1024
"""Most bytes of a scope that is read with so many others, and of larger ones that are read at once (a single one may be
larger).

Redis answers nobody else before it has worked on all that was asked at once.
"""


class Reader:
    """What is dirty in claimed scopes, in batches: each is what has been read by the time it is asked for."""

    def __init__(
        self,
        read: Callable[[Sequence[Scope], int], Awaitable[list[Dirt | Large]]],
        claimed: Sequence[Scope],
        *,
        rows: int,
        size: int,
    ) -> None:
        """`rows` and `size` (bytes): after so many it waits until some are taken; `size` also bounds a batch.

        `read` gets the most bytes that it may read of one scope.
        """
        self._read = read
        self._claimed = claimed
        self._enough = rows
        self._size = size
        self._found: list[Dirt] = []
        self._rows = self._bytes = 0
        """What was read and not taken yet."""
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
                large = await self._read_some(self._claimed[at : at + _STEP], min(_SMALL, self._size // _STEP))
                while large:
                    fitting = _fitting(large, min(_AT_ONCE, self._size))
                    large = large[len(fitting) :]
                    await self._read_some([one.scope for one in fitting], ANY_SIZE)
        finally:
            # Also where reading failed: whoever waits to take something has to see it.
            self._changed.set()

    async def _read_some(self, scopes: Sequence[Scope], most: int) -> list[Large]:
        """Read scopes when there is room; those of more than `most` bytes are returned unread."""
        while self._is_enough():
            await self._change()
        found = await self._read(scopes, most)
        dirt = [one for one in found if isinstance(one, Dirt)]
        self._found += dirt
        self._count(dirt, 1)
        self._changed.set()
        return [one for one in found if isinstance(one, Large)]

    def _is_enough(self) -> bool:
        return self._rows >= self._enough or self._bytes >= self._size

    def _count(self, dirt: Sequence[Dirt], sign: int) -> None:
        for rows, size in map(size_of, dirt):
            self._rows += sign * rows
            self._bytes += sign * size

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _fitting(large: Sequence[Large], size: int) -> Sequence[Large]:
    """The first scopes that have no more than `size` bytes together; at least one."""
    total = 0
    for count, one in enumerate(large):
        total += one.size
        if count and total > size:
            return large[:count]
    return large
