"""The screen of ``sessioncache top``, drawn from samples of the metrics.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sessioncache.cli.printing import plain
from sessioncache.hot.metrics import Sample, WorkerSample
from sessioncache.hot.rates import lags_between, percentile, rates_between
from sessioncache.primitives.units import sparkline, told_bytes, told_number, told_seconds, told_time
from sessioncache.settings import CacheSettings

_BARS = 30
"""Samples of a sparkline."""
_WORKERS = 12
"""Most workers that are shown, so that all fits one screen."""
_WORRYING, _BAD = 0.1, 0.5
"""Parts of a limit of back-pressure from which on what waits is shown in yellow, and in red."""


def render(pulses: Sequence[Sample], *, limits: CacheSettings | None = None, away: str = "") -> RenderableType:
    """The screen for at least one sample; the latest is the last.

    `limits`: the back-pressure by which the backlog is coloured.  `away`: why Redis could not be read this time.
    """
    now = pulses[-1]
    parts: list[RenderableType] = [
        Panel(
            _figures(pulses, limits or CacheSettings()),
            title="sessioncache",
            subtitle=f"{told_time(now.time)} UTC",
            border_style="red" if away else "cyan",
        ),
        _workers(now.workers),
        Text("q ends", style="dim"),
    ]
    if away:
        parts.insert(
            0, Text(f"Redis is away: {plain(away)}; trying again, these are the last figures", style="bold red")
        )
    return Group(*parts)


def _figures(pulses: Sequence[Sample], limits: CacheSettings) -> Table:
    now = pulses[-1]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=12)
    table.add_column(no_wrap=True, min_width=42)
    table.add_column(no_wrap=True, style="cyan")
    table.add_row("waiting", _waiting(now, limits), sparkline([pulse.dirty_scopes for pulse in pulses], _BARS))
    table.add_row("oldest", _oldest(now, limits))
    table.add_row("flushed", _flushed(pulses), sparkline(_flush_rates(pulses), _BARS))
    table.add_row("lag", _lag(pulses))
    table.add_row("loaded", _loaded(pulses))
    table.add_row(
        "dead letters", Text(told_number(now.dead_letters), style="bold red" if now.dead_letters else "green")
    )
    table.add_row("buckets", _buckets(now))
    table.add_row("Redis", _server(now))
    return table


def _waiting(now: Sample, limits: CacheSettings) -> Text:
    about = "" if now.exact else "about "
    told = f"{told_number(now.dirty_scopes)} scopes, {about}{told_number(now.dirty_entries)} entries"
    return Text(told, style=_colour(now.dirty_scopes, limits.max_dirty))


def _oldest(now: Sample, limits: CacheSettings) -> Text:
    if now.oldest_age is None:
        return Text("nothing waits", style="green")
    told = f"{told_seconds(now.oldest_age)} (writes are refused from {told_seconds(limits.max_dirty_age)})"
    return Text(told, style=_colour(now.oldest_age, limits.max_dirty_age))


def _colour(value: float, limit: float) -> str:
    return "bold red" if value >= _BAD * limit else "yellow" if value >= _WORRYING * limit else "green"


def _flushed(pulses: Sequence[Sample]) -> str:
    rates = rates_between(*pulses[-2:]) if len(pulses) > 1 else None
    if rates is None:
        return f"{told_number(pulses[-1].rows)} rows so far"
    return f"{told_number(rates.rows)} rows/s, {told_number(rates.flushes)} scopes/s"


def _flush_rates(pulses: Sequence[Sample]) -> list[float]:
    between = [rates_between(before, after) for before, after in pairwise(pulses)]
    return [rates.rows if rates else 0.0 for rates in between]


def _lag(pulses: Sequence[Sample]) -> str:
    lags = lags_between(pulses[0], pulses[-1])
    if not lags:
        return "nothing was flushed meanwhile"
    half, most = percentile(lags, 0.5), percentile(lags, 0.99)
    return f"p50 {told_seconds(half)}, p99 {told_seconds(most)}"


def _loaded(pulses: Sequence[Sample]) -> str:
    rates = rates_between(*pulses[-2:]) if len(pulses) > 1 else None
    if rates is None:
        return f"{told_number(pulses[-1].hydrates)} scopes, {told_number(pulses[-1].conflicts)} conflicts so far"
    return f"{told_number(rates.hydrates)} scopes/s, {told_number(rates.conflicts)} conflicts/s"


def _buckets(now: Sample) -> Text:
    used = [one for one in now.incarnations.values() if one.id]
    unknown = sum(not one.registered for one in used)
    told = f"{len(used)} of {len(now.incarnations)} used"
    return Text(f"{told}, {unknown} not registered", style="yellow") if unknown else Text(told)


def _server(now: Sample) -> Text:
    server = now.server
    limit = f" of {told_bytes(server.max_memory)}" if server.max_memory else ""
    full = bool(server.max_memory) and server.used_memory > 0.9 * server.max_memory
    told = (
        f"{told_bytes(server.used_memory)}{limit}, {server.clients} clients, {told_number(server.operations)} calls/s"
    )
    return Text(told, style="bold red" if full else "")


def _workers(workers: Sequence[WorkerSample]) -> RenderableType:
    parts: list[RenderableType] = []
    if not any(worker.alive for worker in workers):
        parts.append(Text("no worker is alive: start sessioncache-worker", style="bold red"))
    if workers:
        parts.append(_table(sorted(workers, key=lambda worker: worker.alive)[:_WORKERS]))
    if len(workers) > _WORKERS:
        parts.append(Text(f"and {len(workers) - _WORKERS} more"))
    return Group(*parts)


def _table(workers: Sequence[WorkerSample]) -> Table:
    table = Table("worker", "host", "process", "heartbeat", expand=True, border_style="dim")
    for worker in workers:
        age = f"{told_seconds(worker.age)} ago" if worker.alive else f"silent for {told_seconds(worker.age)}"
        style = "green" if worker.alive else "bold red"
        table.add_row(Text(plain(worker.name)), Text(plain(worker.host)), str(worker.pid or ""), age, style=style)
    return table
