"""Waiting for what other processes do: poll a predicate instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_POLL = 0.01


def wait_until(predicate: Callable[[], object], seconds: float, description: str) -> None:
    """Return as soon as `predicate()` is true; raise TimeoutError naming `description` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {description}")
        time.sleep(_POLL)


async def wait_until_async(
    predicate: Callable[[], Awaitable[object]] | Callable[[], object], seconds: float, description: str
) -> None:
    """`wait_until` for asyncio; the predicate may be a coroutine function or a plain one."""
    deadline = time.monotonic() + seconds
    while not await _ask(predicate):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {description}")
        await asyncio.sleep(_POLL)


async def _ask(predicate: Callable[[], Awaitable[object]] | Callable[[], object]) -> object:
    answer = predicate()
    return await answer if isinstance(answer, Awaitable) else answer
