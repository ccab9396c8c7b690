"""Unflushed writes: what a handle has written and is not yet known to be durable.  Pure: no I/O.

They are kept by scope and incarnation: only within the incarnation of a write is the flush watermark evidence for it.
Within one incarnation only the latest write of each key is kept, since an earlier one need never reach SQL.  Calls may
be answered in another order than Redis worked on them: which is the latest is decided by revisions alone (R11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from sessioncache.hot.fields import Code
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import ANY, FlushState, Operation, Part, Written
from sessioncache.primitives.revisions import decode_revision, encode_revision

_DIGEST_FROM = 256
"""Texts from this length are remembered by a digest, so that no handle holds large values."""


class Noted(NamedTuple):
    """The latest write of a key."""

    revision: bytes
    text: bytes
    """What it left, or the digest of it; empty: deleted."""
    exact: bool = False
    """Whether only this very revision shows it once Redis may have forgotten something.

    The write built on an earlier value.  Where Redis lost it, the same text may be another write, which built on the
    same.
    """


@dataclass(slots=True)
class UnflushedScope:
    """Writes to one scope in one incarnation."""

    place: Place
    incarnation: bytes
    revision: bytes = b""
    """The revision of the latest of them."""
    entries: dict[str, Noted] = field(default_factory=dict)
    """The latest write of each key."""
    life: bytes = b""
    """The revision at which the session was created or deleted, if it was."""
    gone: bool = False
    """Whether it was deleted."""
    head: bytes = b""
    """The revision at which a touch or a new title changed the head alone."""
    whole: bytes = b""
    """Up to where the scope was cleared."""

    def covers(self, revision: bytes) -> bool:
        """Whether the scope was cleared, or the session deleted, after a write of this revision."""
        return revision <= self.whole or (self.gone and revision <= self.life)

    def forget(self, through: bytes, names: Iterable[str]) -> None:
        """Forget entries, and what else is named, up to a revision."""
        self.entries = {key: noted for key, noted in self.entries.items() if noted.revision > through}
        for name in names:
            if getattr(self, name) <= through:
                setattr(self, name, b"")

    def settled(self, state: FlushState) -> bool:
        """Whether the flush watermark has passed the writes, in their incarnation (R11)."""
        return (
            state.incarnation == state.hash_incarnation == self.incarnation and state.flushed_through >= self.revision
        )


class UnflushedWrites:
    """What one handle has written, by scope and incarnation.

    Calls of one handle may be under way at once, and be answered in another order than Redis worked on them.  Whatever
    the order, what is remembered of a key, of the head and of a life is the latest by its revision.
    """

    def __init__(self, unsettled: set[UnflushedWrites] | None = None) -> None:
        """No writes yet; a member of `unsettled` as long as it holds something."""
        self._pending: dict[bytes, dict[bytes, UnflushedScope]] = {}
        """By the scope's hash, then by incarnation."""
        self._unsettled: set[UnflushedWrites] = set() if unsettled is None else unsettled

    def copied(self, unsettled: set[UnflushedWrites]) -> UnflushedWrites:
        """The same writes, in a record that is a member of `unsettled` as long as it holds something."""
        other = UnflushedWrites(unsettled)
        for one in self.pending():
            other._pending.setdefault(one.place.hash, {})[one.incarnation] = one
        if other:
            unsettled.add(other)
        return other

    def __bool__(self) -> bool:
        return bool(self._pending)

    def note(self, parts: Sequence[Part], written: Written, *, life: bool = False) -> None:
        """Record a write (`life`: a create of the first part's session); forget what the reply shows as flushed."""
        revision = written.revision
        for part, done in zip(parts, written.parts, strict=True):
            # R16: `temp:` keys never reach SQL, so that nobody can wait for them.
            if part.temp or not done.changed:
                continue
            same = self._of(part.place, done.incarnation)
            pending = same[done.incarnation]
            # R11: the watermark comes from the same step, in the incarnation of these writes: it is evidence like any
            # other.
            if pending.revision and done.flushed_through >= pending.revision:
                pending.entries.clear()
                pending.life = pending.head = pending.whole = b""
            # Nearly all writes are answered in order, and in one incarnation: those need no comparison with others.
            is_latest = revision >= pending.revision and len(same) == 1
            if is_latest or revision > pending.revision:
                pending.revision = revision
            for operation, result in zip(part.operations, done.results, strict=True):
                code, key, given, expected = operation
                text = given if code == Code.SET else _text_of(operation, result)
                if code == Code.CLEAR:
                    if result:
                        _clear(same, pending, revision)
                elif text is not None:
                    # R11: an increment, an append, an edit or an update with `if_revision` built on what was there
                    # before.
                    exact = code in b"IA" or expected != ANY or part.if_revision != b""
                    noted = Noted(revision, fingerprint(text), exact)
                    if is_latest or _overtakes(same, pending, key, noted):
                        pending.entries[key] = noted
            if life and part is parts[0] and revision >= pending.life and not _is_over(same, revision):
                pending.life, pending.gone = revision, False
            if not is_latest:
                self._drop_empty(same)

    def note_head(self, place: Place, written: Written) -> None:
        """Record a touch or a new title."""
        same, pending = self._reached(place, written)
        if not _is_over(same, written.revision):
            pending.head = max(pending.head, written.revision)
        self._drop_empty(same)

    def note_delete(self, place: Place, written: Written) -> None:
        """Record the delete of a session."""
        same, pending = self._reached(place, written)
        revision = written.revision
        # What was written before the delete is dead with it, whether or not it was flushed.
        for one in same.values():
            one.forget(revision, ("head", "whole", "life"))
        if revision > pending.life:
            pending.life, pending.gone = revision, True
        self._drop_empty(same)

    def pending(self) -> list[UnflushedScope]:
        """A copy of what is not known to be durable now; later writes do not change it."""
        return [replace(one, entries=dict(one.entries)) for same in self._pending.values() for one in same.values()]

    def forget(self, settled: UnflushedScope) -> None:
        """Forget what `settled` says is durable; keep what it does not have, written since or answered only now."""
        same = self._pending.get(settled.place.hash, {})
        now = same.get(settled.incarnation)
        if now is None:
            return
        known = settled.entries
        now.entries = {k: e for k, e in now.entries.items() if k not in known or e.revision > known[k].revision}
        for name in ("life", "head", "whole"):
            if getattr(now, name) <= getattr(settled, name):
                setattr(now, name, b"")
        self._drop_empty(same)

    def _reached(self, place: Place, written: Written) -> tuple[dict[bytes, UnflushedScope], UnflushedScope]:
        incarnation = written.parts[0].incarnation
        same = self._of(place, incarnation)
        pending = same[incarnation]
        pending.revision = max(pending.revision, written.revision)
        return same, pending

    def _drop_empty(self, same: dict[bytes, UnflushedScope]) -> None:
        for one in list(same.values()):
            if not (one.entries or one.life or one.head or one.whole):
                self._drop(one)

    def _drop(self, one: UnflushedScope) -> None:
        same = self._pending[one.place.hash]
        del same[one.incarnation]
        if not same:
            del self._pending[one.place.hash]
        if not self._pending:
            self._unsettled.discard(self)

    def _of(self, place: Place, incarnation: bytes) -> dict[bytes, UnflushedScope]:
        """The writes to a scope by incarnation, with an entry for this one."""
        if not self._pending:
            self._unsettled.add(self)
        same = self._pending.setdefault(place.hash, {})
        if incarnation not in same:
            same[incarnation] = UnflushedScope(place, incarnation)
        return same


def _clear(same: Mapping[bytes, UnflushedScope], pending: UnflushedScope, revision: bytes) -> None:
    """All keys were cleared: earlier writes to them do not matter any more, in whatever incarnation they were made."""
    # A clear ends what is below its own revision: keys that the same call sets bear that revision, and live.
    whole = encode_revision(decode_revision(revision) - 1)
    if _is_over(same, revision) or any(one.whole >= whole for one in same.values() if one is not pending):
        return
    for one in same.values():
        if one is not pending:
            one.forget(whole, ("whole",))
    pending.forget(revision, ())
    pending.whole = max(pending.whole, whole)


def _is_over(same: Mapping[bytes, UnflushedScope], revision: bytes) -> bool:
    """Whether the session was deleted after a write of this revision."""
    return any(one.gone and revision <= one.life for one in same.values())


def _overtakes(same: Mapping[bytes, UnflushedScope], pending: UnflushedScope, key: str, noted: Noted) -> bool:
    """Whether no later write of the key was recorded; what it overtakes in other incarnations does not matter any more.

    A value that was set does not depend on the earlier one; a write that built on it is shown by itself alone.
    """
    revision = noted.revision
    for one in same.values():
        known = one.entries.get(key)
        if one.covers(revision) or (known and known.revision > revision and (one is pending or not known.exact)):
            return False
    for one in same.values():
        known = one.entries.get(key)
        if one is not pending and known and known.revision < revision and not noted.exact:
            del one.entries[key]
    return True


def fingerprint(text: bytes) -> bytes:
    """The text itself if it is short, else a digest of it."""
    # No stored text begins with NUL, so that a digest is never equal to one.
    return text if len(text) < _DIGEST_FROM else b"\0" + blake2b(text, digest_size=16).digest()


def _text_of(operation: Operation, result: bytes | int) -> bytes | None:
    """The text that an operation left; None if it changed nothing."""
    if operation.code == Code.DELETE:
        return b"" if result == 1 else None
    if operation.code == Code.SET_UNLESS_OLDER and result == 0:
        return None
    return result if isinstance(result, bytes) and operation.code in (Code.INCREMENT, Code.APPEND) else operation.text
