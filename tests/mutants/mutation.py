"""What a mutation is, and what became of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Mutation:
    """One guard taken out."""

    name: str
    rule: str
    """The rule that the guard keeps, R1 to R20, or the part whose promise it keeps."""
    file: str
    """Path below the root of the checkout."""
    find: str
    """The guard as it stands there, exactly once."""
    replace: str
    tests: tuple[str, ...]
    """Ids of the tests of which one goes red; ids of pytest below ``tests/``, whole files or single tests."""


class Verdict(StrEnum):
    """What became of a mutation."""

    CAUGHT = "caught"
    TIMED_OUT = "caught by time-out"
    MISSED = "missed"
    """No test noticed."""
    STALE = "stale"
    """The guard is not there exactly once, or what came of it is no program."""
    RED_BEFORE = "red before"
    """A chosen test fails without the mutation already, or does not exist."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mutation's verdict."""

    mutation: Mutation
    verdict: Verdict
    test: str = ""
    """The test that went red first."""
    why: str = ""
    seconds: float = 0.0

    @property
    def caught(self) -> bool:
        """Whether a test went red for it."""
        return self.verdict in (Verdict.CAUGHT, Verdict.TIMED_OUT)
