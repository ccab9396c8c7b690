"""Waiting for what other processes do: poll a predicate instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

_POLL = 0.01
_FACTOR = 6.0
"""By which every wait is longer in a test that holds nothing to a time limit (not marked `alone`): see `patience`."""

_factor = 1.0


def stretched(seconds: float) -> float:
    """So many seconds, or more where the test is patient."""
    return seconds * _factor


@contextmanager
def patience(*, patient: bool) -> Iterator[None]:
    """Wait longer in the block than is said, since a busy machine needs longer and nothing depends on it."""
    global _factor
    before, _factor = _factor, _FACTOR if patient else 1.0
    try:
        yield
    finally:
        _factor = before


def wait_until(predicate: Callable[[], object], seconds: float, description: str) -> None:
    """Return as soon as `predicate()` is true; raise TimeoutError naming `description` after `seconds`."""
    seconds = stretched(seconds)
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {description}")
        time.sleep(_POLL)


async def wait_until_async(
    predicate: Callable[[], Awaitable[object]] | Callable[[], object], seconds: float, description: str
) -> None:
    """`wait_until` for asyncio; the predicate may be a coroutine function or a plain one."""
    seconds = stretched(seconds)
    deadline = time.monotonic() + seconds
    while not await _ask(predicate):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {description}")
        await asyncio.sleep(_POLL)


async def _ask(predicate: Callable[[], Awaitable[object]] | Callable[[], object]) -> object:
    answer = predicate()
    return await answer if isinstance(answer, Awaitable) else answer
