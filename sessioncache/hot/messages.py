"""Messages: what the scripts are asked and what they answer, as types.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import NamedTuple

from sessioncache.hot.fields import Field, key_field
from sessioncache.hot.layout import Place
from sessioncache.primitives.revisions import DIGITS, ZERO

ANY = b"*"
"""Expected revision of an operation: any."""
ABSENT = b""
"""Expected revision of an operation: the key is not there."""
_OF_A_KEY = ord("=")
"""What the name of a field that holds a key begins with."""


@dataclass(frozen=True, slots=True)
class Large:
    """The size of what is dirty in a scope that is too large to be read with others."""

    scope: tuple[int, str]
    """Its bucket and member."""
    size: int
    """Bytes of its values."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """What Redis holds of a scope is not what our scripts write: nothing can be done with it."""

    cause: str


GARBLED = Damaged("a field of it in Redis is cut short or garbled")


class Gathered(NamedTuple):
    """What is stored in pieces, to be created by one script (see `large_creates.py`)."""

    birth: bytes
    """The revision of all of it."""
    name: bytes
    counts: Sequence[tuple[int, int, str]]
    """For each scope, the session first: keys, bytes of them, and the namespace."""


class Operation(NamedTuple):
    """One key's change."""

    code: bytes
    """S set, R set unless what is there has a later caller timestamp, D delete, I increment, A append, C clear the
    scope."""
    key: str
    text: bytes = b""
    expected: bytes = ANY
    """The revision that the entry must have."""


class Part(NamedTuple):
    """What a call changes of one scope; `temp` means the session's temp: keys."""

    place: Place
    operations: Sequence[Operation] = ()
    birth: bytes = b""
    """The life of the session that the handle belongs to; ``+`` in a create."""
    if_revision: bytes = b""
    temp: bool = False


class WrittenPart(NamedTuple):
    """What became of one part."""

    incarnation: bytes
    flushed_through: bytes
    changed: bool
    results: list[bytes | int]
    before: bytes = b""
    """The revision that the scope had before."""
    values_before: bytes = b""
    """The revision that its values had before."""
    content: Content | None = None
    """The whole scope as it was after the write, where that was asked for and nobody wrote in between."""


class Written(NamedTuple):
    """A write that was applied."""

    revision: bytes
    parts: list[WrittenPart]
    birth: bytes = b""
    """The revision of the private keys of a new session, where it differs from that of the shared keys."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A write that was not applied, and where it failed: pairs of part and operation, from 0."""

    why: str
    """stale, limit, mismatch, compute, lease or erased."""
    where: list[tuple[int, int]]
    detail: str = ""
    text: bytes = b""
    revision: bytes = b""


@dataclass(frozen=True, slots=True)
class Touch:
    """What a touch adds to a session's counters, and its title."""

    messages: int = 0
    tokens: int = 0
    title: str = ""
    """Used where there is none; with `rename` in any case."""
    rename: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete did."""

    existed: bool
    written: Written | None
    """None: the session was kept, since it has been in use."""
    living: int | None = None
    """Keys that it had; None: it was not hot."""
    namespaces: dict[str, int] = field(default_factory=dict)
    """Its namespaces that SQL did not have yet in full, with the number of their keys."""


class Stamp(NamedTuple):
    """The result of erasing a user's scope."""

    revision: bytes
    living: int
    """Keys that it had."""
    incarnation: bytes


class Token(NamedTuple):
    """What lets its holder install a scope."""

    value: bytes
    incarnation: bytes
    birth: bytes
    """For a namespace: the birth of its session."""


class Wanted(NamedTuple):
    """What a call reads of one scope."""

    place: Place
    keys: Sequence[str] | None = None
    """None: all."""
    birth: bytes = b""
    temp: bool = False
    held: bytes = b""
    """The version that the caller holds already; empty: none."""


class Content:
    """What one scope holds, or those of its keys that were asked for."""

    __slots__ = ("_entries", "_size", "fields", "incarnation")

    def __init__(self, incarnation: bytes, fields: dict[bytes, bytes]) -> None:
        self.incarnation = incarnation
        self.fields = fields
        """As Redis holds them: head fields, and ``=`` with the key -> nine digits of revision and the text."""
        self._entries: dict[str, bytes] | None = None
        self._size = -1

    @property
    def version(self) -> bytes:
        """The version, which another reading of the whole scope has to have to be equal; empty where there is no
        scope."""
        revision = self.fields.get(Field.REVISION)
        return self.incarnation + revision if revision else b""

    @property
    def revision(self) -> bytes:
        """The revision of the scope's values."""
        return self.fields.get(Field.VALUES_REVISION) or self.fields.get(Field.REVISION) or ZERO

    @property
    def head(self) -> dict[bytes, bytes]:
        """The head fields."""
        return {name: value for name, value in self.fields.items() if name[0] != _OF_A_KEY}

    @property
    def size(self) -> int:
        """Bytes of values, roughly."""
        if self._size < 0:
            # A reading of single keys comes without the number that the head has.
            told = self.fields.get(Field.BYTES)
            self._size = int(told) if told else sum(map(len, self.fields.values()))
        return self._size

    @property
    def entries(self) -> dict[str, bytes]:
        """Living entries: key -> nine digits of revision and the text (see `Entry`); dead ones are left out (R14)."""
        if self._entries is None:
            self._entries = self.named("")
        return self._entries

    def field(self, key: str) -> bytes:
        """Nine digits of revision and the text of a key as stored, dead or not; empty where there is no such field."""
        return self.fields.get(key_field(key), b"")

    def named(self, prefix: str) -> dict[str, bytes]:
        """The living entries by their keys behind a prefix; a new dict."""
        key, cleared, fields = _key_behind(prefix), self.fields.get(Field.CLEARED, ZERO), self.fields.items()
        # Most scopes were never cleared: the comparison of each entry is left out.
        if cleared == ZERO:
            # R14: a revision without a text behind it is the tombstone of a key.
            return {key(name): value for name, value in fields if name[0] == _OF_A_KEY and len(value) > DIGITS}
        return {
            key(name): value
            for name, value in fields
            if name[0] == _OF_A_KEY and len(value) > DIGITS and value[:DIGITS] > cleared
        }


@cache
def _key_behind(prefix: str) -> Callable[[bytes], str]:
    """A function from a field to its key.  It remembers results: agents have the same few keys in all their
    sessions."""
    return lru_cache(maxsize=16384)(lambda name: prefix + name[1:].decode())


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What an acknowledgement did."""

    left: int
    rows: int
    refused: list[bytes]
    """Fields that SQL has newer and that were not written again in the hot tier (``?``: missing or older here)."""


@dataclass(frozen=True, slots=True)
class FlushState:
    """How far a scope has been flushed."""

    incarnation: bytes
    hash_incarnation: bytes
    flushed_through: bytes
    marks: int
    dead: dict[str, bytes] = field(default_factory=dict)
    """Keys that the database refuses: the revision refused."""
    headless: bool = False
    """Whether it refuses the head, and with it the whole scope."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Scopes of one bucket that a worker claimed."""

    incarnation: bytes
    wait: float | None
    """Seconds until the next scope is due; None: nothing is dirty."""
    members: list[str]
