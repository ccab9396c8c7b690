"""Batches: which dirty scopes go into one transaction.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sessioncache.primitives.entries import Dirt


def batches(dirt: Iterable[Dirt], *, rows: int, size: int) -> Iterator[list[Dirt]]:
    """Cut dirty scopes into batches of at most `rows` rows (heads count) and `size` bytes; no scope is split (R6)."""
    batch: list[Dirt] = []
    batch_rows = batch_size = 0
    for one in dirt:
        own_rows, own_size = size_of(one)
        if batch and (batch_rows + own_rows > rows or batch_size + own_size > size):
            yield batch
            batch, batch_rows, batch_size = [], 0, 0
        batch.append(one)
        batch_rows += own_rows
        batch_size += own_size
    if batch:
        yield batch


def size_of(dirt: Dirt) -> tuple[int, int]:
    """Rows (the head counts) and bytes of what is dirty in a scope."""
    return 1 + len(dirt.entries), sum([len(text) for _, _, text in dirt.entries])


def halves(batch: list[Dirt]) -> tuple[list[Dirt], list[Dirt]]:
    """Two batches of about the same number of scopes."""
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
