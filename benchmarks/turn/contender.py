"""What every contender does, and the counter from which written values come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from benchmarks.turn import plan

_numbers = count(plan.KEYS)


def new_text() -> str:
    """A value that no session begins with, and that this process has not written before."""
    return plan.text(next(_numbers))


class Contender(Protocol):
    """One way to keep the state of sessions that are known by their number."""

    async def create(self, numbers: Sequence[int]) -> None:
        """Bring sessions into being, with all keys of their three scopes."""

    async def open(self, numbers: Sequence[int]) -> None:
        """Get ready to turn sessions that some process has created."""

    async def change(self, number: int) -> object:
        """Write `plan.CHANGED` in each scope: what others do between two turns."""

    async def turn(self, number: int) -> object:
        """Read all three scopes, decode every value, write `plan.WRITTEN` in each."""

    async def aclose(self) -> None:
        """Close the connections."""
