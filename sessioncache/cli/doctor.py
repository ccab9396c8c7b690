"""The command ``doctor``: shows what an examination found."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from sessioncache.cli.options import installation_of
from sessioncache.cli.printing import is_terminal, plain, print_json
from sessioncache.health.examination import examine, find_targets
from sessioncache.health.findings import Level, Report
from sessioncache.settings import CacheSettings

_STYLES = {Level.GOOD: "green", Level.WARNING: "yellow", Level.BAD: "bold red"}


async def doctor(options: argparse.Namespace) -> int:
    """Examine both tiers."""
    targets = find_targets(options.redis, options.database, options.data_dir)
    report = await examine(targets, CacheSettings(**installation_of(options)))
    if options.json:
        print_json({"healthy": report.healthy, "findings": [asdict(one) for one in report.findings]})
    elif is_terminal():
        Console().print(render(report))
    else:
        print(as_lines(report))
    return 3 if report.away else 0 if report.healthy else 1


def render(report: Report) -> RenderableType:
    """The report in colours."""
    table = Table.grid(padding=(0, 2))
    for one in report.findings:
        told = Text(plain(one.found), overflow="fold")
        if one.advice:
            told.append(f"\n→ {plain(one.advice)}", style="italic")
        table.add_row(Text(one.level, style=_STYLES[one.level]), Text(one.name, style="bold"), told)
    table.add_row("", "", "")
    table.add_row("", "", Text(summary(report), style="bold green" if report.healthy else "bold red"))
    return table


def as_lines(report: Report) -> str:
    """The report as lines for programs that know nothing of terminals: one a finding, then what to do."""
    lines = []
    for one in report.findings:
        lines.append(f"{one.level:<8} {one.name:<13} {plain(one.found)}")
        if one.advice:
            lines.append(f"{'':<8} {'':<13} -> {plain(one.advice)}")
    return "\n".join([*lines, summary(report)])


def summary(report: Report) -> str:
    """The whole in one line."""
    counts = Counter(one.level for one in report.findings)
    told = ", ".join(f"{counts[level]} {level}" for level in (Level.BAD, Level.WARNING, Level.GOOD) if counts[level])
    left_out = "; what only the unavailable tier knows is left out" if report.away else ""
    return f"{'healthy' if report.healthy else 'unhealthy'}: {told}{left_out}"
