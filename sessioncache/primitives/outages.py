"""Outages: the log says once that a tier went away, ever more rarely that it still is, and once that it is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from sessioncache.primitives.units import told_seconds

REDIS, SQL = "Redis", "the SQL database"
_FIRST_AGAIN = 60.0
"""Seconds after which an outage is logged again; after that twice as many, and so on."""
_RARELY = 3_600.0


@dataclass(slots=True)
class Outage:
    """A tier that is away."""

    cause: str
    since: float
    again: float
    """When it is logged again."""
    pause: float = _FIRST_AGAIN


class Outages:
    """What is away now, as far as this process knows."""

    def __init__(self, logger: logging.Logger, waiting: Callable[[], str] = str) -> None:
        """`waiting` returns how much waits for the database, if that is known."""
        self._logger = logger
        self._waiting = waiting
        self.current: dict[str, Outage] = {}
        """By tier; read by every call."""

    def __contains__(self, tier: str) -> bool:
        return tier in self.current

    def causes(self) -> dict[str, str]:
        """Tier -> why it is away."""
        return {tier: one.cause for tier, one in self.current.items()}

    def away(self, tier: str, cause: str) -> None:
        """A tier failed with this error."""
        now = time.monotonic()
        one = self.current.get(tier)
        if one is None:
            self.current[tier] = Outage(cause, now, now + _FIRST_AGAIN)
            self._logger.warning("%s is away, and is tried again: %s", tier, cause)
            return
        one.cause = cause
        if now >= one.again:
            one.pause = min(2 * one.pause, _RARELY)
            one.again = now + one.pause
            self._logger.warning("%s has been away for %s: %s", tier, told_seconds(now - one.since), cause)

    def back(self, tier: str, waiting: str = "") -> None:
        """A tier answered; `waiting`: how much waits for it."""
        one = self.current.pop(tier, None)
        if one is not None:
            waiting = waiting or (self._waiting() if tier == SQL else "")
            seconds = told_seconds(time.monotonic() - one.since)
            self._logger.warning("%s is back after %s%s", tier, seconds, f"; {waiting}" if waiting else "")
