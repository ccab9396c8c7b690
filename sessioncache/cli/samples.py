"""Samples of the metrics as lines: of text, and of JSON.  Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sessioncache.cli.printing import plain
from sessioncache.hot.metrics import Sample
from sessioncache.hot.rates import lags_between, percentile, rates_between
from sessioncache.primitives.units import told_bytes, told_number, told_seconds, told_time


def as_json(pulses: Sequence[Sample], away: str) -> str:
    """The latest sample as an object on one line; rates and lags are those since the one before, null for the first.

    Ages and lags are in seconds, sizes in bytes.  `away`: why Redis could not be read; then there is nothing else.
    """
    if away:
        return json.dumps({"away": away})
    now = pulses[-1]
    told: dict[str, Any] = {
        "away": None,
        "time": datetime.fromtimestamp(now.time, UTC).isoformat(),
        "dirty_scopes": now.dirty_scopes,
        "dirty_entries": now.dirty_entries,
        "dirty_entries_exact": now.exact,
        "oldest_age": now.oldest_age,
        "dead_letters": now.dead_letters,
        **{name: getattr(now, name) for name in ("rows", "flushes", "hydrates", "conflicts")},
        "per_second": _rates(pulses),
        "lag": _lag(pulses),
        "workers": [{**asdict(worker), "alive": worker.alive} for worker in now.workers],
        "buckets": _buckets(now),
        "redis": asdict(now.server),
    }
    return json.dumps(told)


def as_line(pulses: Sequence[Sample], away: str) -> str:
    """The latest sample as a line of text, for logs, and for terminals that cannot be drawn on."""
    if away:
        return f"Redis is away: {plain(away)}; trying again"
    now = pulses[-1]
    rates, lag = (_rates(pulses) or {}), (_lag(pulses) or {})
    about = "" if now.exact else "~"
    alive = sum(worker.alive for worker in now.workers)
    parts = [
        told_time(now.time),
        f"waiting {told_number(now.dirty_scopes)} scopes {about}{told_number(now.dirty_entries)} entries",
        f"oldest {told_seconds(now.oldest_age)}",
        f"flushed {told_number(rates.get('rows'))} rows/s",
        f"lag p50 {told_seconds(lag.get('p50'))} p99 {told_seconds(lag.get('p99'))}",
        f"loaded {told_number(rates.get('hydrates'))}/s",
        f"conflicts {told_number(rates.get('conflicts'))}/s",
        f"dead {told_number(now.dead_letters)}",
        f"workers {alive} of {len(now.workers)} alive",
        f"memory {told_bytes(now.server.used_memory)}",
    ]
    return "  ".join(parts)


def _rates(pulses: Sequence[Sample]) -> dict[str, float] | None:
    rates = rates_between(*pulses[-2:]) if len(pulses) > 1 else None
    return {name: round(rate, 3) for name, rate in asdict(rates).items()} if rates else None


def _lag(pulses: Sequence[Sample]) -> dict[str, float | None] | None:
    if len(pulses) < 2:
        return None
    lags = lags_between(*pulses[-2:])
    return {"p50": percentile(lags, 0.5), "p99": percentile(lags, 0.99)}


def _buckets(now: Sample) -> dict[str, int]:
    ones = now.incarnations.values()
    return {
        "all": len(ones),
        "used": sum(bool(one.id) for one in ones),
        "registered": sum(one.registered for one in ones),
    }
