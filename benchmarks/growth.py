"""What grows with the backlog, with the number of hot sessions, and with their size: nothing should.

Run ``python benchmarks/growth.py [--json] [--rounds N] [--part backlog|sessions|sizes]``; it starts servers of its own,
takes some minutes and about 3 GiB of memory.  Figures go into benchmarks/results.json, part by part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks import growth_backlog, growth_sessions, growth_sizes
from benchmarks.measuring import console, options, print_json, table
from benchmarks.results import record

ROUNDS = 11
PARTS: dict[str, Callable[[int], Awaitable[dict[str, object]]]] = {
    "backlog": growth_backlog.measure,
    "sessions": growth_sessions.measure,
    "sizes": growth_sizes.measure,
}


def figures(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows of a table: every figure with its spread, curves and spreads left out."""
    rows = []
    for key, value in found.items():
        if isinstance(value, (int, float)) and not key.endswith(("_low", "_high")):
            spread = f" ({found[f'{key}_low']:.2f} to {found[f'{key}_high']:.2f})" if f"{key}_low" in found else ""
            rows.append((key, f"{value:,.2f}{spread}"))
    return rows


def show(part: str, found: Mapping[str, Any]) -> Table:
    """A table of one part."""
    return table(f"Growth: {part}", ("", "median of the rounds (quartiles)"), figures(found))


async def run(parts: Sequence[str], rounds: int, *, as_json: bool) -> None:
    """Measure, record and print."""
    found: dict[str, object] = {}
    for part in parts:
        measured = await PARTS[part](rounds)
        record(measured)
        console().print(show(part, measured))
        found |= measured
    if as_json:
        print_json(found)


def main() -> None:
    """Run as a command."""
    parser = options("What grows with the backlog, with the number of hot sessions, and with their size.")
    parser.add_argument("--part", choices=tuple(PARTS), help="this part alone")
    chosen = parser.parse_args()
    parts = [chosen.part] if chosen.part else list(PARTS)
    asyncio.run(run(parts, chosen.rounds or ROUNDS, as_json=chosen.json))


if __name__ == "__main__":
    main()
