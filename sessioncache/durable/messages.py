"""Messages: what the durable tier takes and answers besides entries; without SQLAlchemy, so that callers load none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sessioncache.primitives.scopes import ScopeRef
from sessioncache.primitives.signal import Signal


class FencedOff(Signal):
    """The fence of `buckets` does not name the given incarnation; nothing was read."""

    def __init__(self, buckets: Iterable[int]) -> None:
        self.buckets = frozenset(buckets)
        super().__init__(f"the fence names another incarnation for buckets {sorted(self.buckets)}")


class Asked(NamedTuple):
    """A scope and keys of which evidence is asked for."""

    scope: ScopeRef
    keys: Sequence[str]
    """Without prefix."""
    oldest: bool = False
    """Whether the oldest other living row is asked for, too."""


class Swap(Enum):
    """The outcome of one swap."""

    CURRENT = "current"
    """The fence named the new incarnation already."""
    SWAPPED = "swapped"
    """The fence names the new incarnation now."""
    MOVED = "moved"
    """Another process changed the fence meanwhile: read it again."""
    REPLACED = "replaced"
    """The new incarnation was registered once and replaced: it never comes back."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A session that was deleted hot, and at which revision."""

    session: ScopeRef
    revision: int


@dataclass(frozen=True, slots=True)
class Owned:
    """A session of the user as SQL has it."""

    session: ScopeRef
    entries: dict[str, int]
    """Namespace ('' for private keys) -> living entries."""
