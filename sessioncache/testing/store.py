"""What the caches in memory share: scopes, and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple

from sessioncache.hot.fields import Field
from sessioncache.hot.layout import Place
from sessioncache.hot.signals import Gone
from sessioncache.hot.subscriptions import Announcement
from sessioncache.primitives.revisions import ZERO
from sessioncache.primitives.scopes import ScopeKind


class HeldLease(NamedTuple):
    """A run lease."""

    token: bytes
    ends: int
    """Microseconds since 1970."""


@dataclass(slots=True)
class Cell:
    """What one scope holds, or the `temp:` keys of one session; all that dies with a session lies in its cell."""

    place: Place
    head: dict[bytes, bytes] = field(default_factory=dict)
    """Head fields, named as in the hot tier."""
    entries: dict[str, bytes] = field(default_factory=dict)
    """Living entries: key -> nine digits of revision and the text."""
    size: int = 0
    """Bytes of JSON of all entries."""
    spaces: dict[str, Cell] = field(default_factory=dict)
    """A session's namespaces."""
    temp: Cell | None = None
    """A session's `temp:` keys."""
    expires: int = 0
    """Microseconds since 1970 at which `temp:` keys are gone."""
    lease: HeldLease | None = None

    @property
    def revision(self) -> bytes:
        """The scope revision."""
        return self.head.get(Field.REVISION, ZERO)

    @property
    def values_revision(self) -> bytes:
        """The revision of its own keys."""
        return self.head.get(Field.VALUES_REVISION, self.revision)

    @property
    def birth(self) -> bytes:
        """The life of a session; empty where it was deleted."""
        return b"" if self.head.get(Field.DELETED) else self.head.get(Field.BIRTH, b"")

    def empty(self, revision: bytes) -> None:
        """Make it the tombstone of a session, or of all that a user's sessions shared."""
        self.head |= dict.fromkeys(
            (Field.CLEARED, Field.REVISION, Field.VALUES_REVISION, Field.HEAD_REVISION, Field.UPDATED), revision
        )
        self.entries, self.size, self.spaces = {}, 0, {}
        self.temp = self.lease = None


class MemoryStore:
    """The state behind one or several `InMemorySessionCache` objects of one process."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """An empty store; `clock` returns the microseconds since 1970."""
        self.now = clock or _wall_clock
        self.lock = RLock()
        """HeldLease for each step, so that steps of several threads are atomic too."""
        self.scopes: dict[bytes, Cell] = {}
        """Sessions (tombstones too) and shared scopes, by the name that a scope's hash has in Redis."""
        self.notes: dict[str, str] = {}
        """What SQL would keep beside the sessions: how long those of an app are kept."""
        self.erased: dict[bytes, int] = {}
        """Ids of the scopes of erased users: until when their writes are refused."""
        self.ears: set[Callable[[bytes, bytes], None]] = set()
        """Called with channel and payload of each announcement, as the scripts make them."""

    def living(self, place: Place) -> Cell | None:
        """A session that exists."""
        cell = self.scopes.get(place.hash)
        return cell if cell and cell.birth else None

    def session(self, place: Place, birth: bytes) -> Cell:
        """A session in one life, or in any where `birth` is empty.  Gone."""
        cell = self.living(place)
        if cell is None or birth not in (b"", cell.birth):
            raise Gone
        return cell

    def first(self, place: Place, birth: bytes) -> Cell:
        """The scope that a call begins with.  Gone."""
        if place.ref.kind is ScopeKind.SESSION:
            return self.session(place, birth)
        return self.scopes.get(place.hash) or Cell(place)

    def beside(self, host: Cell, place: Place, *, temp: bool) -> Cell:
        """A scope that a call reaches beside its session; one that is not there yet is empty."""
        if temp:
            return host.temp if host.temp and self.now() < host.temp.expires else Cell(place)
        if place.ref.kind is ScopeKind.NAMESPACE:
            return host.spaces.get(place.ref.namespace) or Cell(place)
        return self.scopes.get(place.hash) or Cell(place)

    def keep(self, host: Cell, cell: Cell, *, temp: bool) -> None:
        """Put a scope that was written where it is found again."""
        if temp:
            host.temp = cell
        elif cell.place.ref.kind is ScopeKind.NAMESPACE:
            host.spaces[cell.place.ref.namespace] = cell
        else:
            self.scopes[cell.place.hash] = cell

    def is_held(self, session: Cell, token: bytes) -> bool:
        """Whether the run lease of a session is held by this token."""
        held = session.lease
        return held is not None and held.token == token and held.ends > self.now()

    def announce(self, place: Place, told: Announcement) -> None:
        """Announce to whoever watches a scope what happened to it."""
        for ear in self.ears:
            ear(place.channel, told.payload())

    def sessions(self) -> list[Cell]:
        """All sessions, tombstones too."""
        return [cell for cell in self.scopes.values() if cell.place.ref.kind is ScopeKind.SESSION]

    def is_erased(self, user: bytes) -> bool:
        """Whether writes of a user are refused, since the user was erased just now."""
        return self.now() < self.erased.get(user, 0)


def _wall_clock() -> int:
    return time.time_ns() // 1_000
