"""Deadlines: how long a call may still take, one deadline for all its steps."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from contextvars import ContextVar
from reprlib import repr as short

from sessioncache.errors import ConfigurationError

# The instant at which everything has to be over, and the seconds that one exchange may take of it.
_DEADLINE: ContextVar[tuple[float, float] | None] = ContextVar("sessioncache_deadline", default=None)

DEFAULT_TIMEOUT = 5.0
"""Seconds an exchange may take outside of any call."""
_PART = 0.4
"""Part of a call's time after which an exchange without an answer is given up: there is time for another one."""
_LONGEST = 10.0


def check_seconds(name: str, value: object, *, least: float = 0.0, most: float = 86_400.0) -> float:
    """The number of seconds that a caller gave; ConfigurationError unless it is between `least` and `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a number of seconds from {least:g} to {most:g}, not {short(value)}")
    return float(value)


class _Within:
    """See `within`."""

    __slots__ = ("_alone", "_seconds", "_token")

    def __init__(self, seconds: float, *, alone: bool = False) -> None:
        self._seconds = seconds
        self._alone = alone

    def __enter__(self) -> None:
        outer = None if self._alone else _DEADLINE.get()
        own = asyncio.get_running_loop().time() + self._seconds
        attempt = min(_PART * self._seconds, _LONGEST)
        self._token = _DEADLINE.set((own, attempt) if outer is None else (min(own, outer[0]), attempt))

    def __exit__(self, *_: object) -> None:
        _DEADLINE.reset(self._token)


def within(seconds: float) -> AbstractContextManager[None]:
    """Everything inside ends within `seconds`; an outer deadline that is earlier stays in force."""
    return _Within(seconds)


def apart(seconds: float) -> AbstractContextManager[None]:
    """Everything inside ends within `seconds`, whatever is left of an outer deadline: to find out why that one
    passed."""
    return _Within(seconds, alone=True)


def deadline() -> float:
    """The instant, by the event loop's clock, at which the call has to be over."""
    current = _DEADLINE.get()
    return current[0] if current else asyncio.get_running_loop().time() + DEFAULT_TIMEOUT


def attempt_deadline() -> float:
    """The instant at which one exchange has to be over."""
    now = asyncio.get_running_loop().time()
    current = _DEADLINE.get()
    return min(current[0], now + current[1]) if current else now + DEFAULT_TIMEOUT


def seconds_left() -> float:
    """Seconds until the deadline; 0 when it has passed."""
    return max(0.0, deadline() - asyncio.get_running_loop().time())


def limited_to() -> float | None:
    """Seconds until the deadline of the call; None outside of any."""
    return seconds_left() if _DEADLINE.get() else None
