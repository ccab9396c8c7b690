"""Measuring: alternating rounds, their medians and spread, tables, profiles."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import io
import json
import pstats
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

Call = Callable[[int], Awaitable[object]]
"""One call of a contender, for the session of that number."""

_TOP = 22
"""Functions that a profile shows."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of several rounds, and their quartiles."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, rounds: Sequence[float]) -> Spread:
        """Of one number a round."""
        ordered = sorted(rounds)
        quarter = len(ordered) // 4
        return cls(median(ordered), ordered[quarter], ordered[-1 - quarter])

    def shown(self, digits: int = 2) -> str:
        """For a table."""
        return f"{self.middle:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours ÷ theirs, round by round, so that what slows the machine for a while slows both."""
    return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])


async def median_latency(call: Call, number: int, calls: int) -> float:
    """The median duration of calls one after another, in microseconds."""
    taken: list[int] = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        await call(number)
        taken.append(time.perf_counter_ns() - began)
    return median(taken) / 1_000


async def rate(call: Call, in_flight: int, calls: int) -> float:
    """Calls a second of so many tasks, each of which makes so many calls one after another."""

    async def agent(number: int) -> None:
        for _ in range(calls):
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(agent(number) for number in range(in_flight)))
    return in_flight * calls / (time.perf_counter() - began)


async def alternate(contenders: Mapping[str, Callable[[], Awaitable[float]]], rounds: int) -> dict[str, list[float]]:
    """One number a contender and round; each round begins with another contender."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            gc.collect()
            found[name].append(await contenders[name]())
    return found


async def profiled(what: str, run: Callable[[], Awaitable[object]], console: Console) -> None:
    """Print the functions of this process that take most time of their own while `run` runs."""
    profile = cProfile.Profile()
    profile.enable()
    await run()
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(_TOP)
    console.print(f"\n[bold]{what}[/bold]: own time by function (the profiler slows calls, most of all short ones)")
    lines = [line for line in text.getvalue().splitlines() if line.strip()]
    console.print("\n".join(lines[:1] + lines[3:]), highlight=False, markup=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A readable table; its first column is text, the others are numbers."""
    made = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left")
    for row in rows:
        made.add_row(*row)
    return made


def options(description: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    parser.add_argument("--profile", action="store_true", help="also show where the time goes")
    parser.add_argument("--rounds", type=int, help="alternating rounds")
    return parser


def console() -> Console:
    """Where tables go; wide enough for them where stdout is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def print_json(values: Mapping[str, object]) -> None:
    """One line; numbers to four digits after the point."""
    print(json.dumps({name: round(v, 4) if isinstance(v, float) else v for name, v in values.items()}), flush=True)
