"""The report of a replay: one JSON object, or a table.  Pure but for printing."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from sessioncache.hot.backlog import Counters
from sessioncache.replay.fleet import Figures
from sessioncache.replay.verification import Verdict


def summarize(figures: Figures, before: Counters, after: Counters, verdict: Verdict) -> dict[str, Any]:
    """The results of a replay by their JSON keys."""
    rows = after.rows - before.rows
    lags = {step: after.lags[step] - before.lags.get(step, 0) for step in after.lags}
    mismatches = figures.mismatches + verdict.hot + verdict.cold + verdict.rows
    return {
        "sessions": figures.sessions,
        "turns": figures.turns,
        "writes": len(figures.writes),
        "writes_per_s": round(len(figures.writes) / figures.seconds, 1),
        "write_p50_ms": _ms(figures.writes, 0.5),
        "write_p99_ms": _ms(figures.writes, 0.99),
        "read_p50_ms": _ms(figures.reads, 0.5),
        "read_p99_ms": _ms(figures.reads, 0.99),
        "rows_flushed": rows,
        "coalescing": round(figures.entries / rows, 2) if rows else None,
        "flush_lag_p50_s": lag_quantile(lags, 0.5),
        "flush_lag_p99_s": lag_quantile(lags, 0.99),
        "worker_kills": figures.worker_kills,
        "mismatches": mismatches,
        "temp_leaks": verdict.temp_leaks,
        "verified": mismatches == 0 and verdict.temp_leaks == 0,
    }


def lag_quantile(lags: dict[int, int], part: float) -> float | None:
    """Seconds within which a part of the rows was acknowledged, to a quarter octave; None without rows."""
    total, seen = sum(lags.values()), 0
    for step in sorted(lags):
        seen += lags[step]
        if total and seen >= part * total:
            return float(f"{2 ** (step / 4) / 1000:.3g}")
    return None


def print_table(console: Console, summary: dict[str, Any], verdict: Verdict) -> None:
    """For people: a table on a terminal, else a line for each result, with a tab before the number."""
    figures = _figures(summary)
    differences = [
        ("differences, hot read", str(verdict.hot)),
        ("differences, cold read (an empty Redis)", str(verdict.cold)),
        ("differences, SQL rows", str(verdict.rows)),
        ("temp: markers in the database", str(verdict.temp_leaks)),
    ]
    if not console.is_terminal:
        for row in (*figures, *differences):
            console.out("\t".join(row), highlight=False)
        return
    table = Table("figure", "value", title="Replay")
    table.columns[1].justify = "right"
    for row in figures:
        table.add_row(*row)
    table.add_section()
    for row in differences:
        table.add_row(*row)
    console.print(table)


def _figures(summary: dict[str, Any]) -> list[tuple[str, str]]:
    told = {name: value for name, value in summary.items() if name not in ("mismatches", "temp_leaks", "verified")}
    return [(name.replace("_", " "), f"{value:,}" if value is not None else "-") for name, value in told.items()]


def _ms(seconds: list[float], part: float) -> float | None:
    if not seconds:
        return None
    return round(sorted(seconds)[min(len(seconds) - 1, int(part * len(seconds)))] * 1000, 3)
