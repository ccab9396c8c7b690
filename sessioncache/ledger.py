"""Ledgers: what a handle has written and is not yet known to be durable.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from sessioncache.hot.calls import ANY, FlushState, Operation, Part, Written
from sessioncache.hot.layout import Place
from sessioncache.revisions import decode_revision, encode_revision

_DIGEST_FROM = 256
"""Texts from this length are remembered by a digest, so that a ledger holds no large values."""


class Noted(NamedTuple):
    """The latest write of a key."""

    revision: bytes
    text: bytes
    """What it left, or the digest of it; empty: deleted."""
    exact: bool = False
    """Whether only this very revision shows it once Redis may have forgotten something.

    It built on what was there.  Where Redis lost it, the same text is another's write, which built on the same.
    """


@dataclass(slots=True)
class Pending:
    """Writes to one scope in one incarnation."""

    place: Place
    incarnation: bytes
    revision: bytes = b""
    """The latest of them."""
    entries: dict[str, Noted] = field(default_factory=dict)
    """The latest of each key."""
    life: bytes = b""
    """The revision at which the session was created or deleted, if it was."""
    gone: bool = False
    """Whether it was deleted."""
    head: bytes = b""
    """The revision at which a touch or a new title changed the head alone."""
    whole: bytes = b""
    """Up to where the scope was cleared."""

    def settled(self, state: FlushState) -> bool:
        """Flushed through, in the incarnation of the writes (R11)."""
        return (
            state.incarnation == state.hash_incarnation == self.incarnation and state.flushed_through >= self.revision
        )


class Ledger:
    """What one handle has written, by scope and incarnation."""

    def __init__(self, unsettled: set[Ledger] | None = None) -> None:
        """A ledger that is in `unsettled` as long as it holds something."""
        self._pending: dict[bytes, dict[bytes, Pending]] = {}
        """By hash and incarnation."""
        self._unsettled: set[Ledger] = set() if unsettled is None else unsettled

    def copied(self, unsettled: set[Ledger]) -> Ledger:
        """A ledger of the same writes, in `unsettled` as long as it holds something."""
        other = Ledger(unsettled)
        for one in self.pending():
            other._pending.setdefault(one.place.hash, {})[one.incarnation] = one
        if other:
            unsettled.add(other)
        return other

    def __bool__(self) -> bool:
        return bool(self._pending)

    def note(self, parts: Sequence[Part], written: Written, *, life: bool = False) -> None:
        """Remember a write (`life`: a create of the first part's session); forget what the reply shows as flushed."""
        revision = written.revision
        for part, done in zip(parts, written.parts, strict=True):
            if part.temp or not done.changed:
                continue
            same = self._of(part.place, done.incarnation)
            pending = same[done.incarnation]
            if pending.revision and done.flushed_through >= pending.revision:
                pending.entries.clear()
                pending.life = pending.head = pending.whole = b""
            pending.revision = revision
            for operation, result in zip(part.operations, done.results, strict=True):
                code, key, given, expected = operation
                text = given if code == b"S" else _text_of(operation, result)
                if code == b"C":
                    if result:
                        pending.entries.clear()
                        pending.whole = encode_revision(decode_revision(revision) - 1)
                        self._supersede(pending, None)
                elif text is not None:
                    exact = code in b"IA" or expected != ANY or part.if_revision != b""
                    pending.entries[key] = Noted(revision, fingerprint(text), exact)
                    if len(same) > 1 and not exact:
                        self._supersede(pending, key)
            if life and part is parts[0]:
                pending.life, pending.gone = revision, False

    def _supersede(self, latest: Pending, key: str | None) -> None:
        """What was written to a key in other incarnations does not matter once it was set anew, whatever it was.

        None: all keys, since they were cleared.
        """
        for other in list(self._pending[latest.place.hash].values()):
            if other is latest:
                continue
            if key is None:
                other.entries.clear()
                other.whole = b""
            else:
                other.entries.pop(key, None)
            if not (other.entries or other.life or other.head or other.whole):
                self._drop(other)

    def note_head(self, place: Place, written: Written) -> None:
        """Remember a touch or a new title."""
        incarnation = written.parts[0].incarnation
        pending = self._of(place, incarnation)[incarnation]
        pending.revision = pending.head = written.revision

    def note_delete(self, place: Place, written: Written) -> None:
        """Remember the delete of a session."""
        incarnation = written.parts[0].incarnation
        pending = self._of(place, incarnation)[incarnation]
        pending.revision = pending.life = written.revision
        pending.gone = True
        pending.head = pending.whole = b""
        pending.entries.clear()

    def pending(self) -> list[Pending]:
        """What is not known to be durable now, unmoved by what is written from now on."""
        return [replace(one, entries=dict(one.entries)) for same in self._pending.values() for one in same.values()]

    def forget(self, settled: Pending) -> None:
        """Forget what `settled` says is durable; keep what was written since."""
        now = self._pending.get(settled.place.hash, {}).get(settled.incarnation)
        if now is None:
            return
        if now.revision == settled.revision:
            self._drop(now)
            return
        now.entries = {k: e for k, e in now.entries.items() if e.revision > settled.revision}
        for name in ("life", "head", "whole"):
            if getattr(now, name) <= settled.revision:
                setattr(now, name, b"")

    def _drop(self, one: Pending) -> None:
        same = self._pending[one.place.hash]
        del same[one.incarnation]
        if not same:
            del self._pending[one.place.hash]
        if not self._pending:
            self._unsettled.discard(self)

    def _of(self, place: Place, incarnation: bytes) -> dict[bytes, Pending]:
        """By incarnation, this one among them."""
        if not self._pending:
            self._unsettled.add(self)
        same = self._pending.setdefault(place.hash, {})
        if incarnation not in same:
            same[incarnation] = Pending(place, incarnation)
        return same


def fingerprint(text: bytes) -> bytes:
    """The text itself if it is short, else something that only the same text has."""
    return text if len(text) < _DIGEST_FROM else b"\0" + blake2b(text, digest_size=16).digest()


def _text_of(operation: Operation, result: bytes | int) -> bytes | None:
    """The text that an operation left; None if it changed nothing."""
    if operation.code == b"D":
        return b"" if result == 1 else None
    if operation.code == b"R" and result == 0:
        return None
    return result if isinstance(result, bytes) and operation.code in (b"I", b"A") else operation.text
