"""What the measured tests cover, by package: ``python -m tests.covered`` after a run with ``--cov``.

It exits with 1 below the floor that pyproject.toml sets (``fail_under``). ``coverage report`` gives a line a module.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Covered:
    """Statements and branches of some files, and how many of them ran."""

    statements: int = 0
    run: int = 0
    branches: int = 0
    taken: int = 0

    def __add__(self, other: Covered) -> Covered:
        return Covered(
            self.statements + other.statements,
            self.run + other.run,
            self.branches + other.branches,
            self.taken + other.taken,
        )

    @property
    def percent(self) -> float:
        """Statements and branches together, as coverage counts them."""
        possible = self.statements + self.branches
        return 100 * (self.run + self.taken) / possible if possible else 100.0


def by_package(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Covered]:
    """The sums of each folder; `files` is that part of coverage's JSON report."""
    sums: dict[str, Covered] = {}
    for name, report in sorted(files.items()):
        package, summary = str(PurePosixPath(name).parent), report["summary"]
        one = Covered(
            summary["num_statements"], summary["covered_lines"], summary["num_branches"], summary["covered_branches"]
        )
        sums[package] = sums.get(package, Covered()) + one
    return sums


def table(packages: Mapping[str, Covered], total: Covered) -> Table:
    """A line for each package, and the total."""
    shown = Table("package", title="Coverage", title_justify="left")
    for head in ("statements", "branches", "covered"):
        shown.add_column(head, justify="right")
    for name, one in packages.items():
        shown.add_row(name, f"{one.statements:,}", f"{one.branches:,}", f"{one.percent:.1f} %")
    shown.add_section()
    shown.add_row("all", f"{total.statements:,}", f"{total.branches:,}", f"{total.percent:.1f} %")
    return shown


def _measured() -> tuple[dict[str, Covered], float]:
    """What the last run measured, and the floor."""
    from coverage import Coverage  # is missing where only the lowest versions are tried

    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        coverage.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    return by_package(files), coverage.config.fail_under


def main() -> int:
    """Print the table; 1 if the total is below the floor."""
    packages, floor = _measured()
    total = sum(packages.values(), Covered())
    Console().print(table(packages, total))
    if total.percent >= floor:
        return 0
    print(
        f"{total.percent:.1f} % are covered; the floor is {floor:g} % (fail_under in pyproject.toml)", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
