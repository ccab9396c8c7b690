"""A part of the suite: what it measures, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

Say = Callable[[str], None]
"""Tell what is being measured now."""


@dataclass
class Outcome:
    """Figures by their keys (see `results`), and tables to be read."""

    figures: dict[str, Any] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark of the suite."""

    name: str
    keys: Sequence[str]
    """What it measures at least, to be told as missing where it cannot be run."""
    run: Callable[[int, Say], Coroutine[Any, Any, Outcome]]
    """Measure; the number of alternating rounds is given."""
    rounds: int
    """Rounds unless others are asked for."""
