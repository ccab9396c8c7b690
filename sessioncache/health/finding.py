"""Findings: what was examined, what it is like, and what to do.  Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How one thing stands."""

    GOOD = "good"
    WARNING = "warning"
    """It works, and something may be lost or become bad."""
    BAD = "bad"
    """It does not work, or data is in danger now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined."""

    name: str
    level: Level
    found: str
    advice: str = ""
    """What to do; empty where it is good."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found."""

    findings: Sequence[Finding]
    away: bool = False
    """Whether a tier is out of reach, so that the findings about it are missing."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is bad."""
        return all(one.level is not Level.BAD for one in self.findings)


def good(name: str, found: str) -> Finding:
    """A finding that needs nothing."""
    return Finding(name, Level.GOOD, found)


def warning(name: str, found: str, advice: str) -> Finding:
    """A finding that deserves attention."""
    return Finding(name, Level.WARNING, found, advice)


def bad(name: str, found: str, advice: str) -> Finding:
    """A finding that needs action."""
    return Finding(name, Level.BAD, found, advice)


def version_of(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with, to be compared."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found.group().split("."))) if found else ()
