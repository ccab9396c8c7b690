"""Reading ahead: while SQL commits a batch, what comes after it is read, as far as one more batch goes.

Scopes are read many at a time, as long as they are small; of a large one only its size is told, and it is read with
few others, when there is room for it.  So what is read and not taken is two batches at most, or a batch and the largest
scope.
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
"""Bytes of a scope that is read with so many others, and of all that are read at once of larger ones, or one of them.

Redis answers nobody before it has worked on all that was asked at once.
"""


class Reader:
    """The dirt of claimed scopes in batches: each is what has been read by the time it is asked for."""

    def __init__(
        self,
        read: Callable[[Sequence[Scope], int], Awaitable[list[Dirt | Large]]],
        claimed: Sequence[Scope],
        *,
        rows: int,
        size: int,
    ) -> None:
        """`rows` and `size` (bytes): after so many it waits until some are taken; the latter also bounds a batch.

        `read` is told how many bytes of one scope it may bring.
        """
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
                large = await self._read_some(self._claimed[at : at + _STEP], min(_SMALL, self._size // _STEP))
                while large:
                    fitting = _fitting(large, min(_AT_ONCE, self._size))
                    large = large[len(fitting) :]
                    await self._read_some([one.scope for one in fitting], ANY_SIZE)
        finally:
            self._changed.set()

    async def _read_some(self, scopes: Sequence[Scope], most: int) -> list[Large]:
        """Read scopes when there is room; those of more than `most` bytes are left."""
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
    """The first scopes that make up no more than `size` bytes together; at least one."""
    total = 0
    for count, one in enumerate(large):
        total += one.size
        if count and total > size:
            return large[:count]
    return large
