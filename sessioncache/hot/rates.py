"""Rates: what happened between two samples of the metrics.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sessioncache.hot.metrics import Sample, lag_seconds


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened per second, never negative: where Redis forgot its counters, what it has counted since."""

    rows: float
    """Rows flushed."""
    flushes: float
    """Flushes of a scope."""
    hydrates: float
    conflicts: float


def rates_between(before: Sample, after: Sample) -> Rates | None:
    """The rates from one sample to a later one; None where the clock of Redis did not advance."""
    seconds = after.time - before.time
    if seconds <= 0:
        return None

    def rate(name: str) -> float:
        return _grown(getattr(before, name), getattr(after, name)) / seconds

    return Rates(rate("rows"), rate("flushes"), rate("hydrates"), rate("conflicts"))


def lags_between(before: Sample, after: Sample) -> dict[int, int]:
    """The histogram of the rows that were flushed between two samples: step -> rows."""
    steps = {step: _grown(before.lags.get(step, 0), rows) for step, rows in after.lags.items()}
    return {step: rows for step, rows in steps.items() if rows}


def percentile(lags: Mapping[int, int], share: float) -> float | None:
    """Seconds within which a share (0 to 1) of the rows was flushed, to the nearest step; None without rows."""
    wanted, seen = share * sum(lags.values()), 0
    for step in sorted(lags):
        seen += lags[step]
        if seen and seen >= wanted:
            return lag_seconds(step)
    return None


def _grown(before: int, after: int) -> int:
    return after - before if after >= before else after
