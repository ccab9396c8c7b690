"""How long a call may still take: one deadline for all its steps, whatever they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_DEADLINE: ContextVar[float | None] = ContextVar("sessioncache_deadline", default=None)

DEFAULT_TIMEOUT = 5.0
"""Seconds an exchange may take outside of any call."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Everything inside ends within `seconds`; an outer deadline that is earlier stays in force."""
    outer = _DEADLINE.get()
    own = asyncio.get_running_loop().time() + seconds
    token = _DEADLINE.set(own if outer is None else min(own, outer))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def deadline() -> float:
    """The instant, by the event loop's clock, at which the call has to be over."""
    return _DEADLINE.get() or asyncio.get_running_loop().time() + DEFAULT_TIMEOUT


def seconds_left() -> float:
    """Seconds until then; 0 when it has passed."""
    return max(0.0, deadline() - asyncio.get_running_loop().time())
