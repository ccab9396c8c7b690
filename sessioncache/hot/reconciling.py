"""Reconciling: what becomes of a scope of which both tiers have something, by the rules of revalidation (R14, R17,
R18).

Pure: no I/O.  Of two versions of an entry the one with the larger revision counts.  Where one tier has an entry and the
other none, these revisions decide:

- `flushed`: the scope revision up to which a hash, or SQL, records that the whole scope was flushed.  The hash keeps
  it over incarnations.  SQL below the hash has forgotten (a restored backup, a standby that lagged): then all that
  lives is stamped anew, above everything, and what SQL has besides is cleared.
- `purged` of SQL: the largest revision that purging ever removed.  At or below it an entry without a row was deleted.
- `p` of the hash: all that SQL knew when it was loaded or revalidated, and every tombstone that was flushed and
  dropped.  At or below it a row that the hash lacks is dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sessioncache.hot.fields import HEAD_MARK, KEY_MARK, Field, fields_of
from sessioncache.primitives.entries import Head, StoredScope
from sessioncache.primitives.revisions import DIGITS, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind
from sessioncache.primitives.timestamps import json_size

FLAG = b"?"
"""The mark of a scope that is to be compared with SQL; no field is named like it."""
_NAMES = "iyrbcxfpvhunz"
_REVISIONS = "rbcxfpvhu"
_NOTHING = Head("", "", "", "", revision=0)
_STEP_FIELDS = 500
_STEP_BYTES = 512 * 1024


class HeldEntry(NamedTuple):
    """An entry of a hash."""

    revision: int
    size: int
    """Bytes of its JSON."""
    dead: bool


class MoreNeededError(Exception):
    """The text of a row is needed of which only the revision was read: all rows have to be read."""


@dataclass(slots=True)
class Looked:
    """What a hash holds, except for the values."""

    own: bool
    """Whether it is of the bucket's incarnation, and was marked for revalidation."""
    now: int
    head: Mapping[str, bytes | None]
    marks: set[bytes]
    entries: dict[bytes, HeldEntry]

    @classmethod
    def of(cls, incarnation: str, now: int, head: Sequence[bytes | None], marks: Sequence[bytes]) -> Looked:
        """From the first part of the script's answer.  ValueError where a revision is none."""
        named = dict(zip(_NAMES, head, strict=True))
        looked = cls(named["i"] == incarnation.encode(), now, named, set(marks), {})
        # R10: all of them now, so that a damaged head is found before anything is done to the scope.
        for name in _REVISIONS:
            looked.revision(name)
        return looked

    def add(self, told: Sequence[bytes]) -> None:
        """Add entries from a further part.  ValueError."""
        for name, value in zip(told[::2], told[1::2], strict=True):
            size = value[DIGITS:]
            self.entries[name] = HeldEntry(decode_revision(value[:DIGITS]), int(size or 0), not size)

    def revision(self, name: str) -> int:
        """The revision in a head field; 0 where there is none."""
        value = self.head[name]
        return decode_revision(value) if value else 0

    def is_whole(self, incarnation: str) -> bool:
        """Whether it is of an incarnation, and was not found to differ from SQL."""
        return self.head["i"] == incarnation.encode() and not self.head["y"]

    @property
    def since(self) -> int:
        """SQL's rows up to here are as the hash has them, unless the hash was found to differ from SQL."""
        return 0 if self.head["y"] else self.revision("f")


@dataclass(slots=True)
class Step:
    """A part of what is to be done to a hash, small enough for one script."""

    sets: list[bytes] = field(default_factory=list)
    """Fields and values."""
    stamps: list[bytes] = field(default_factory=list)
    """Fields that keep their value and get the stamp as their revision."""
    gone: list[bytes] = field(default_factory=list)
    marks: list[bytes] = field(default_factory=list)
    unmarks: list[bytes] = field(default_factory=list)
    size: int = 0

    def __len__(self) -> int:
        return len(self.sets) // 2 + len(self.stamps) + len(self.gone) + len(self.marks) + len(self.unmarks)


@dataclass(slots=True)
class Merged:
    """What is to be done to a hash."""

    drop: bool = False
    """The session was deleted and purged: the hash goes, and nothing else is to be done."""
    forgot: bool = False
    """Whether SQL has less than was flushed."""
    revision: int = 0
    stamp: int = 0
    head: dict[bytes, bytes] = field(default_factory=dict)
    """Head fields; an empty ``x`` is removed."""
    head_is_dirty: bool = False
    new_life: bool = False
    replaced: bool = False
    flushed: int | None = None
    purged: int = 0
    sets: dict[bytes, bytes] = field(default_factory=dict)
    stamps: dict[bytes, int] = field(default_factory=dict)
    """With the bytes of each."""
    gone: list[bytes] = field(default_factory=list)
    marks: list[bytes] = field(default_factory=list)
    unmarks: list[bytes] = field(default_factory=list)

    def steps(self) -> Iterator[Step]:
        """The parts, in which marks come before what they are for; at least one."""
        step = Step()
        for part, name, size in self._parts():
            if len(step) >= _STEP_FIELDS or (len(step) and step.size + size > _STEP_BYTES):
                yield step
                step = Step()
            step.size += size
            if part == "sets":
                step.sets += (name, self.sets[name])
            else:
                getattr(step, part).append(name)
        yield step

    def _parts(self) -> Iterator[tuple[str, bytes, int]]:
        # R1: a step that is interrupted leaves marks too many rather than a value without one.
        yield from (("marks", name, 0) for name in self.marks)
        yield from (("sets", name, len(value)) for name, value in self.sets.items())
        yield from (("stamps", name, size) for name, size in self.stamps.items())
        yield from (("gone", name, 0) for name in self.gone)
        yield from (("unmarks", name, 0) for name in self.unmarks)


def reconcile(kind: ScopeKind, looked: Looked, stored: StoredScope, *, anew: bool = False) -> Merged:
    """What is to be done to a hash of one kind of scope; `anew`: as if SQL had forgotten.  MoreNeededError."""
    return _Reconciler(kind, looked, stored).run(anew=anew)


def stamp_anew(kind: ScopeKind, looked: Looked) -> Merged:
    """What is to be done to a hash that is whole, once SQL has forgotten: nothing is taken from SQL."""
    # R18: a hash that is whole lacks only what was deleted; as one of this incarnation it loses nothing to a purge.
    return reconcile(kind, replace(looked, own=True), StoredScope(_NOTHING, [], 0, absent=True), anew=True)


class _Reconciler:
    def __init__(self, kind: ScopeKind, looked: Looked, stored: StoredScope) -> None:
        self.kind, self.looked, self.stored = kind, looked, stored
        self.is_session = kind is ScopeKind.SESSION
        self.own = looked.own
        self.birth, self.cleared = looked.revision("b"), looked.revision("c")
        self.deleted = bool(looked.head["x"])
        # R3: what comes next must be above all that either tier has, not only above the two heads.
        highest = max((held.revision for held in looked.entries.values()), default=0)
        self.top = max(looked.revision("r"), stored.known, highest)
        self.was_cleared = self.cleared
        self.made = Merged(stamp=max(self.top + 1, looked.now))
        self.took_head = self.stamped = self.kept = self.outdoes = False
        self.sizes: dict[bytes, int] = {}
        """Bytes of each entry that lives in the end."""

    def run(self, *, anew: bool) -> Merged:
        made, head = self.made, self.stored.head
        # R14: a session that Redis brought back from an older file, long after its tombstone was purged.
        if self._is_purged_session():
            made.drop = True
            return made
        buried = self.deleted and self._is_purged_tombstone()
        flushed, known = self._of_this_life(head.flushed), self._of_this_life(self.looked.revision("f"))
        # A tombstone that SQL has purged is missing there, too: that alone is no sign that SQL came back older.
        made.forgot = anew or (flushed < known and not buried)
        made.purged = self.stored.known
        # Where SQL lacks a clear or a delete yet, its rows are not as the hash has them, however far it was flushed.
        made.flushed = flushed
        if self.kind is ScopeKind.NAMESPACE:
            if self.cleared > max(head.cleared, self.birth - 1):
                made.flushed = known
            self.cleared = max(self.cleared, head.cleared)
        else:
            self._settle_head(buried=buried)
            if self.outdoes:
                made.flushed = known
        self._settle_entries()
        if made.forgot:
            self._stamp_all()
        self._finish()
        return made

    def _of_this_life(self, flushed: int) -> int:
        """How far it was flushed, in this life; what SQL has of a namespace's earlier life goes with the flush of this
        one."""
        return flushed if self.kind is not ScopeKind.NAMESPACE or flushed >= self.birth else 0

    # ---- the head

    def _is_purged_session(self) -> bool:
        """Whether it is a session of an older incarnation without a head in SQL: deleted, and purged."""
        gone = self.is_session and not self.own and self.stored.absent and not self.deleted
        return gone and self.birth <= self.stored.purged

    def _is_purged_tombstone(self) -> bool:
        return self.is_session and self.stored.absent and self.cleared <= self.stored.purged

    def _settle_head(self, *, buried: bool) -> None:
        made, sql = self.made, self.stored.head
        marked, updated = HEAD_MARK in self.looked.marks, self.looked.revision("u")
        life = self.cleared if self.deleted else self.birth
        sql_life = -1 if self.stored.absent else sql.cleared if sql.deleted else sql.birth
        # R17: a head written in this incarnation is news to SQL, whatever SQL has.
        if marked and self.own:
            made.head_is_dirty = True
            self._stamp_head()
        # R5: SQL has a newer life of the session: nothing of the older one counts.
        elif sql_life > life:
            self._take_head()
            made.new_life = True
            self.birth, self.cleared, self.deleted = sql.birth, sql.cleared, sql.deleted
        # R17: a mark of an older incarnation stays only where SQL is older; here SQL has all that this head has.
        elif sql_life == life and sql.updated >= updated and sql.cleared >= self.cleared:
            if not self.deleted:
                self._take_head()
        else:
            made.head_is_dirty = not buried and (self.is_session or self.cleared > sql.cleared)
            self.outdoes = made.head_is_dirty and not self.stored.absent
            if sql_life == life and not self.deleted and sql.updated >= updated:
                self._take_head()  # of the hash's head only last cleared counts
                self.kept = True
            if self.outdoes and sql.revision >= self.looked.revision("r"):
                # R7: SQL refuses a head at or below its own revision, to which another primary may have raised it.
                self._stamp_head()
        if sql_life == life and not self.deleted:
            self.cleared = max(self.cleared, sql.cleared)
            # R5: the revision was raised by a merge that SQL has yet to know of, also after another change of
            # incarnation.
            made.head_is_dirty |= marked and self.looked.revision("r") > sql.revision
        if HEAD_MARK in self.looked.marks and not made.head_is_dirty:
            made.unmarks.append(HEAD_MARK)

    def _stamp_head(self) -> None:
        """Stamp the head: SQL refuses one at its own revision or below; a tombstone ends what was written before it,
        too."""
        self.stamped = True
        if self.deleted:
            self.cleared = self.made.stamp

    def _take_head(self) -> None:
        told = fields_of(self.stored.head, self.kind)
        fields = dict(zip(told[::2], told[1::2], strict=True))
        self.made.head.update(
            (name, value) for name, value in fields.items() if name not in (Field.REVISION, Field.FLUSHED)
        )
        self.took_head = self.is_session

    # ---- the entries

    def _settle_entries(self) -> None:
        rows: dict[bytes, tuple[int, bytes | None]] = {}
        if not self.deleted:
            rows = {KEY_MARK + key.encode(): (revision, None) for key, revision in self.stored.unchanged.items()}
            rows |= {KEY_MARK + entry.key.encode(): (entry.revision, entry.text) for entry in self.stored.entries}
        marks = {name for name in self.looked.marks if name != HEAD_MARK}
        for name in self.looked.entries.keys() | rows.keys() | marks:
            self._settle(name, self._hot(name), self._living(rows.get(name)))

    def _hot(self, name: bytes) -> HeldEntry | None:
        """The entry of the hash, unless it is dead."""
        held = self.looked.entries.get(name)
        if held is None or self.deleted:
            return None
        mine = self.own and name in self.looked.marks
        if held.revision > self.cleared or mine:
            return held
        # R2: it lived in this hash until now, so that whoever has read it must find the values changed.
        self.made.replaced |= held.revision > self.was_cleared
        return None

    def _living(self, row: tuple[int, bytes | None] | None) -> tuple[int, bytes | None] | None:
        return row if row and row[0] > self.cleared else None

    def _settle(self, name: bytes, held: HeldEntry | None, row: tuple[int, bytes | None] | None) -> None:
        if held and row:
            if self.own and name in self.looked.marks and row[0] >= held.revision:
                self._stamp(name, held)
            elif row[0] >= held.revision:
                self._take(name, row, held)
            else:
                self._keep(name, held)
        # From here on only one tier has the entry: the revisions at the top of this module decide.
        elif held and self._was_purged(held):
            self._drop(name)
            self.made.replaced = True
        elif held:
            self._keep(name, held)
        elif row and (row[1] is None or row[1]):
            if row[0] > self.looked.revision("p"):
                self._take(name, row, None)
            else:  # its tombstone was flushed once, and SQL has the row again: write the tombstone again
                self.made.sets[name], self.stamped = encode_revision(self.made.stamp), True
                self.made.marks.append(name)
        else:
            self._drop(name)

    def _was_purged(self, held: HeldEntry) -> bool:
        """Whether an entry of an older incarnation without a row was deleted, and its tombstone purged."""
        flushed = self.stored.head.flushed
        # R14: something that was never flushed has no tombstone in SQL that could have been purged.
        known = held.revision <= self.stored.purged and (not flushed or held.revision <= flushed)
        return known and not self.own and not held.dead

    def _stamp(self, name: bytes, held: HeldEntry) -> None:
        """Stamp an entry above SQL: it was written in this incarnation, and SQL would refuse its revision."""
        self.made.stamps[name], self.stamped = held.size, True
        self._keep(name, held)

    def _keep(self, name: bytes, held: HeldEntry) -> None:
        """Keep an entry; it is dirty, since SQL lacks it or has an older one."""
        self.kept = True
        if name not in self.looked.marks:
            self.made.marks.append(name)
        if not held.dead:
            self.sizes[name] = held.size

    def _take(self, name: bytes, row: tuple[int, bytes | None], held: HeldEntry | None) -> None:
        revision, text = row
        if text == b"":
            self._drop(name)
            self.made.replaced |= held is not None and not held.dead
            return
        # Only revisions were read of what SQL has flushed before: the text of this row is needed after all.
        if text is None and not (held and held.revision == revision):
            raise MoreNeededError
        if text is not None:
            self.made.sets[name] = encode_revision(revision) + text
            self.made.replaced |= held is None or held.revision != revision
        self.sizes[name] = json_size(text) if text is not None else held.size if held else 0
        if name in self.looked.marks:
            self.made.unmarks.append(name)

    def _drop(self, name: bytes) -> None:
        if name in self.looked.entries:
            self.made.gone.append(name)
        if name in self.looked.marks:
            self.made.unmarks.append(name)

    # ---- what follows from it

    def _stamp_all(self) -> None:
        """SQL has forgotten: all that lives is stamped above everything, and everything else is cleared."""
        made, digits = self.made, encode_revision(self.made.stamp)
        held = self.looked.entries
        living = set(self.sizes)
        taken = {name: digits + value[DIGITS:] for name, value in made.sets.items() if name in living}
        made.sets, made.stamps = taken, {name: size for name, size in self.sizes.items() if name not in taken}
        made.marks = sorted(living - self.looked.marks)
        made.gone = sorted(held.keys() - living)
        made.unmarks = sorted(self.looked.marks - living - {HEAD_MARK})
        # Whatever else SQL has lies at or below it, and is dead; what was stamped lives, unless the session is deleted.
        self.cleared = made.stamp if self.deleted else made.stamp - 1
        made.head_is_dirty = self.stamped = made.replaced = True
        # R11: what was flushed to a database that has forgotten it is no evidence any more.
        made.flushed = None

    def _finish(self) -> None:
        made = self.made
        made.revision = max(self.top, made.stamp if self.stamped else 0)
        if self.own:  # whoever holds an earlier version finds that the scope has changed
            made.revision = max(made.revision, self.top + 1)
            # Marked dirty: it may be evicted only once SQL knows this revision, which a later load starts from.
            made.head_is_dirty |= not self.deleted
        revision = encode_revision(made.revision)
        made.head[Field.CLEARED] = encode_revision(self.cleared)
        made.head[Field.DELETED] = made.head[Field.CLEARED] if self.deleted else b""
        made.head[Field.KEYS], made.head[Field.BYTES] = b"%d" % len(self.sizes), b"%d" % sum(self.sizes.values())
        if made.head_is_dirty and (made.forgot or self.own or not self.is_session):
            made.head[Field.HEAD_REVISION] = revision
        if self.took_head and not made.forgot:
            # The revision of SQL's values stands for them only where no hash, this one included, has others at it.
            made.replaced = self.kept or (self.own and made.replaced)
