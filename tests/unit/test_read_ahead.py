"""Reading ahead of SQL: each batch is what has been read by then, and no more is read than one more batch takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sessioncache_worker.read_ahead import Reader, Scope

from sessioncache.hot.messages import Large
from sessioncache.primitives.entries import Dirt, Entry, Head
from sessioncache.primitives.scopes import ScopeKind

STEP = 128
"""Scopes that a reader reads at once."""


def claimed(most: int) -> list[Scope]:
    """So many scopes that a worker has claimed."""
    return [(0, f"{number}") for number in range(most)]


def dirt(number: str, size: int = 1) -> Dirt:
    """The dirt of a scope with one entry."""
    entries = [Entry("k", 1, b"1" * size)]
    return Dirt(ScopeKind.USER, number, 0, "inc", Head("", "a", "u", "", 1), b"", entries)


class Source:
    """Reads scopes, one step for each that is let through."""

    def __init__(self, size: int = 1) -> None:
        self.let_through = asyncio.Semaphore(0)
        self.asked = self.bytes = 0
        self._size = size

    async def read(self, claimed: Sequence[Scope], most: int) -> list[Dirt | Large]:
        """The dirt of some scopes, or how large it is."""
        self.asked += len(claimed)
        await self.let_through.acquire()
        if self._size > most:
            return [Large(one, self._size) for one in claimed]
        self.bytes += len(claimed) * self._size
        return [dirt(number, self._size) for _, number in claimed]

    async def let(self, steps: int) -> None:
        """Let steps through, and let the reader go as far as it goes by itself."""
        for _ in range(steps):
            self.let_through.release()
        for _ in range(50):
            await asyncio.sleep(0)


async def taken(reader: Reader, rows: int) -> list[int]:
    """The scopes of the next batch."""
    return [int(one.scope_id) for one in await reader.take(rows)]


async def test_a_batch_is_what_has_been_read_when_it_is_asked_for() -> None:
    source = Source()
    async with Reader(source.read, claimed(3 * STEP), rows=10_000, size=10_000) as reader:
        await source.let(2)
        assert await taken(reader, 10_000) == list(range(2 * STEP))
        await source.let(1)
        assert await taken(reader, 10_000) == list(range(2 * STEP, 3 * STEP))
        assert await taken(reader, 10_000) == []


async def test_a_batch_has_no_more_rows_than_asked_for() -> None:
    source = Source()
    async with Reader(source.read, claimed(STEP), rows=10_000, size=10_000) as reader:
        await source.let(1)
        assert await taken(reader, 20) == list(range(10))
        assert await taken(reader, 10_000) == list(range(10, STEP))


async def test_no_more_is_read_than_one_more_batch_takes() -> None:
    source = Source()
    async with Reader(source.read, claimed(10 * STEP), rows=2 * STEP, size=10_000) as reader:
        await source.let(10)
        assert source.asked == STEP
        await taken(reader, 2)
        await source.let(0)
        assert source.asked == 2 * STEP


async def test_values_are_not_read_far_ahead() -> None:
    source = Source(size=100)
    async with Reader(source.read, claimed(10 * STEP), rows=10_000, size=150 * 100) as reader:
        await source.let(10)
        assert source.asked == 2 * STEP
        assert await taken(reader, 10_000) == list(range(150))


async def test_large_scopes_are_read_only_when_there_is_room_for_them() -> None:
    source = Source(size=1_000)
    async with Reader(source.read, claimed(STEP), rows=10_000, size=3_500) as reader:
        await source.let(20)
        assert (source.asked, source.bytes) == (STEP + 6, 6_000), "one look at all, and two groups of three"
        assert await taken(reader, 10_000) == [0, 1, 2]
        await source.let(0)
        assert source.bytes == 9_000


async def test_not_much_is_asked_of_redis_at_once() -> None:
    source = Source(size=100_000)
    async with Reader(source.read, claimed(STEP), rows=10_000, size=64 * 1024 * 1024):
        await source.let(2)
        assert source.bytes == 1_000_000, "after one look at all, as many as are a mebibyte"


async def test_what_reading_raises_comes_after_what_was_read() -> None:
    async def read(scopes: Sequence[Scope], _: int) -> list[Dirt | Large]:
        if (0, "0") in scopes:
            return [dirt(number) for _, number in scopes]
        raise ConnectionError

    async with Reader(read, claimed(2 * STEP), rows=10_000, size=10_000) as reader:
        assert len(await taken(reader, 10_000)) == STEP
        with pytest.raises(ConnectionError):
            await reader.take(10_000)


async def test_a_reader_that_is_left_reads_no_more() -> None:
    source = Source()
    async with Reader(source.read, claimed(2 * STEP), rows=10_000, size=10_000):
        await source.let(0)
    await source.let(2)
    assert source.asked == STEP
