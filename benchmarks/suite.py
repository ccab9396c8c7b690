"""The suite: runs its parts one after another, prints their tables, and merges their figures into results.json.

``python -m benchmarks [--only NAME …] [--rounds N] [--plots] [--json]``; every part starts servers of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from benchmarks import plots, results
from benchmarks.flushing import PART as FLUSH
from benchmarks.herd import PART as HERD
from benchmarks.measuring import console, print_json
from benchmarks.memory import PART as MEMORY
from benchmarks.part import Outcome, Part, Say
from benchmarks.servers import Missing, versions
from benchmarks.sizes import PART as SIZES
from benchmarks.turn.measure import PART as TURN

PARTS = (TURN, SIZES, FLUSH, MEMORY, HERD)


@contextmanager
def progress(out: Console) -> Iterator[Say]:
    """A line that tells what is being measured: in place on a terminal, else line by line."""
    began = time.monotonic()
    if not out.is_terminal:
        yield lambda what: out.print(f"{time.monotonic() - began:5.0f} s  {what}", highlight=False)
        return
    with out.status("starting") as status:
        yield lambda what: status.update(f"{time.monotonic() - began:.0f} s  {what}")


def measure(part: Part, rounds: int | None, say: Say) -> Outcome:
    """Run a part; where a server is not installed, its figures are missing for that reason."""
    code = results.code_version()
    try:
        outcome = asyncio.run(part.run(rounds or part.rounds, say))
    except Missing as error:
        outcome = Outcome(results.missing(part.keys, str(error)))
    outcome.figures |= results.measured(part.name, code, results.code_version())
    return outcome


def chosen_parts(names: Sequence[str] | None) -> list[Part]:
    """The parts of these names, all where none are given."""
    return [part for part in PARTS if not names or part.name in names]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    known = [part.name for part in PARTS]
    parser.add_argument("--only", action="append", choices=known, help="run this part (again for more)")
    parser.add_argument("--rounds", type=int, help="alternating rounds of each part")
    parser.add_argument("--plots", action="store_true", help="draw the figures in the end")
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    return parser.parse_args()


def _ended(_number: int, _frame: object) -> None:
    """As Ctrl-C would: otherwise the servers would outlive the suite."""
    raise KeyboardInterrupt


def main() -> int:
    """Run as a command."""
    signal.signal(signal.SIGTERM, _ended)
    chosen = options()
    out = Console(stderr=True, width=None if Console(stderr=True).is_terminal else 120) if chosen.json else console()
    found: dict[str, object] = {}
    with progress(out) as say:
        for part in chosen_parts(chosen.only):
            outcome = measure(part, chosen.rounds, say)
            for one in outcome.tables:
                out.print(one)
            results.record({**outcome.figures, **results.machine(), **versions})
            found |= outcome.figures
    if chosen.plots:
        out.print(f"plots: {plots.draw()}", highlight=False, soft_wrap=True)
    out.print(f"figures: {results.DEFAULT}", highlight=False, soft_wrap=True)
    if chosen.json:
        print_json(found)
    return 0
