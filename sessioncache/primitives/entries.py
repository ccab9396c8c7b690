"""Entries: what both tiers exchange (entries, heads, a scope as SQL has it, what is dirty in a scope).  Pure: no I/O.

None of it is ever changed.  Objects that a flush makes by the thousand are not frozen, since that triples the time to
make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sessioncache.primitives.scopes import ScopeKind


class Entry(NamedTuple):
    """One key of one scope."""

    key: str
    revision: int
    text: bytes
    """The exact JSON text in UTF-8, after the caller timestamp that was given with it, if any (see `timestamps`);
    empty: deleted."""


@dataclass(slots=True)
class Head:
    """A scope's own record.  The fields from `title` on mean something for a session only."""

    org: str
    app: str
    user: str
    session: str
    revision: int
    """The scope revision: at or above the revision of everything in the scope."""
    birth: int = 0
    cleared: int = 0
    """Entries at or below it are dead, wherever they are."""
    deleted: bool = False
    title: str = ""
    message_count: int = 0
    token_total: int = 0
    forked_from: str = ""
    values_revision: int = 0
    """The revision of the session's own keys; for a namespace, of its keys."""
    updated: int = 0
    """The revision of the last write to the session's own keys or namespaces, touch or rename."""
    namespace: str = ""
    """For a namespace: its name."""
    flushed: int = 0
    """The flush watermark: the scope revision up to which all of the scope is known to be in SQL."""


class StoredHead(NamedTuple):
    """A session's head, and the id of its scope."""

    scope_id: str
    head: Head


@dataclass(frozen=True, slots=True)
class StoredScope:
    """A scope as the durable tier has it, read in one snapshot."""

    head: Head
    entries: list[Entry]
    """Living entries only: above `head.cleared`, not deleted.  In a reading of changes: all rows, deleted and dead ones
    too."""
    known: int
    """The largest revision that SQL knows of this scope: of head, last cleared, all rows, tombstones too, and
    `purged`."""
    purged: int = 0
    """The largest revision that purging ever removed from the scope's bucket."""
    absent: bool = False
    """Whether there is neither a head nor a row of it."""
    unchanged: Mapping[str, int] = field(default_factory=dict)
    """In a reading of changes: the rows that live and are not above the revision asked for, by key."""


@dataclass(slots=True)
class Dirt:
    """What is dirty in one scope, as one script read it."""

    kind: ScopeKind
    scope_id: str
    bucket: int
    incarnation: str
    head: Head
    """What is written with the rows: for a namespace the head of its session."""
    head_revision: bytes
    """When the head last changed; an acknowledgement is for this version of it."""
    entries: list[Entry]
    phantoms: list[bytes] = field(default_factory=list)
    """Dirty marks of fields that do not exist."""
    read_at: int = 0
    """When it was read, in microseconds by the clock of Redis."""
    namespace: str = ""
    holder: str = ""
    """For a namespace, the id of its session's scope: the rows and the head are stored with it."""
    namespace_revision: int = 0
    left_out: bool = False
    """Whether something that is dirty is missing among the entries, since the database refuses it."""
    namespace_cleared: int = 0
    namespace_flushed: int = 0

    @property
    def revision(self) -> int:
        """The scope revision."""
        return self.namespace_revision if self.holder else self.head.revision

    @property
    def rows_id(self) -> str:
        """The id under which SQL keeps the rows and the head."""
        return self.holder or self.scope_id

    @property
    def member(self) -> str:
        """Kind and id in one word."""
        return self.kind.value + self.scope_id

    @property
    def host(self) -> Dirt:
        """For a namespace: its session, of which nothing but the head is written."""
        return replace(
            self,
            kind=ScopeKind.SESSION,
            scope_id=self.holder,
            entries=[],
            phantoms=[],
            namespace="",
            holder="",
            namespace_revision=0,
            namespace_cleared=0,
            namespace_flushed=0,
        )

    @property
    def through(self) -> int:
        """How far the scope is flushed once this is; 0: no further than it was."""
        return 0 if self.left_out else self.revision


@dataclass(slots=True)
class Committed:
    """What SQL holds after the transaction that wrote one `Dirt`."""

    dirt: Dirt
    head_revision: int | None
    """The revision of the head's row now; None where there is none."""
    revisions: list[int | None]
    """The revision of each entry's row now, in the order of the entries."""
