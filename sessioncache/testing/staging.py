"""A write in memory: every part is checked and made ready first, and applied only when all are fine."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessioncache.hot.fields import Code, Field
from sessioncache.hot.messages import ANY, Operation, Part, Refused, Written, WrittenPart
from sessioncache.primitives.revisions import DIGITS, LARGEST, ZERO, decode_revision, encode_revision
from sessioncache.primitives.signal import Signal
from sessioncache.primitives.timestamps import date_of, json_of, json_size
from sessioncache.settings import MAX_REPLACED_BYTES, MAX_SCOPE_BYTES, MAX_SCOPE_KEYS, MAX_VALUE_BYTES
from sessioncache.testing.store import Cell

INCARNATION = b"memory"
DURABLE = encode_revision(LARGEST)
"""How far everything in memory counts as flushed."""


class Refusal(Signal):
    """One operation, or a part of the call, cannot be applied."""

    def __init__(self, why: str, detail: str = "", text: bytes = b"", revision: bytes = b"") -> None:
        super().__init__(why)
        self.why = why
        self.detail = detail
        self.text = text
        self.revision = revision

    def at(self, part: int, operation: int) -> Refused:
        """What the call answers; `operation` -1: the part as a whole."""
        return Refused(self.why, [(part, operation)], self.detail, self.text, self.revision)


@dataclass(slots=True)
class Staged:
    """One part of a call, ready to be applied."""

    part: Part
    cell: Cell
    texts: dict[str, bytes | None] = field(default_factory=dict)
    """New texts; None: deleted."""
    results: list[bytes | int] = field(default_factory=list)
    before: tuple[bytes, bytes] = (b"", b"")
    """The revisions of the scope and of its values until it was written."""

    @property
    def changed(self) -> bool:
        """Whether applying it changes anything."""
        return bool(self.texts)

    def operate(self, operation: Operation) -> None:
        """Make one operation ready; raises Refusal."""
        if operation.code == Code.CLEAR:
            self.texts = dict.fromkeys(self.cell.entries)
            self.results.append(len(self.texts))
            return
        value = self.cell.entries.get(operation.key)
        revision, old = (value[:DIGITS], value[DIGITS:]) if value else (b"", None)
        if operation.expected not in (ANY, revision):
            raise Refusal("stale")
        if operation.code == Code.DELETE:
            self.results.append(int(old is not None))
            if old is not None:
                self.texts[operation.key] = None
            return
        if operation.code == Code.SET_UNLESS_OLDER and value and _is_later(value, operation.text):
            self.results.append(0)
            return
        text = _new_text(operation, None if old is None else json_of(old), revision)
        if json_size(text) > max(MAX_VALUE_BYTES, json_size(old or b"")):
            raise Refusal("limit", "value")
        self.texts[operation.key] = text
        self.results.append(
            1 if operation.code == Code.SET_UNLESS_OLDER else b"" if operation.code == Code.SET else text
        )

    def check_limits(self) -> None:
        """Raise Refusal where the call replaces too much, or the scope would be too large, and larger than it is."""
        if len(self.part.operations) > MAX_REPLACED_BYTES // MAX_VALUE_BYTES and self._replaced() > MAX_REPLACED_BYTES:
            raise Refusal("limit", "replaced")
        cell, new = self.cell, [text for text in self.texts.values() if text is not None]
        more = len(new) - sum(key in cell.entries for key in self.texts)
        if more > 0 and len(cell.entries) + more > MAX_SCOPE_KEYS:
            raise Refusal("limit", "keys")
        growth = self._growth()
        if growth > 0 and cell.size + growth > MAX_SCOPE_BYTES:
            raise Refusal("limit", "bytes")

    def _growth(self) -> int:
        """By how many bytes of texts the scope grows."""
        return sum(json_size(text or b"") for text in self.texts.values()) - self._replaced()

    def _replaced(self) -> int:
        """Bytes of the texts that are overwritten or deleted."""
        return sum(json_size(self.cell.entries[key][DIGITS:]) for key in self.texts if key in self.cell.entries)

    def apply(self, revision: bytes) -> None:
        """Change the entries, and the revisions of the scope."""
        self.before = (self.cell.revision, self.cell.values_revision)
        self.cell.size += self._growth()
        for key, text in self.texts.items():
            if text is None:
                del self.cell.entries[key]
            else:
                self.cell.entries[key] = revision + text
        self.cell.head |= {Field.REVISION: revision, Field.VALUES_REVISION: revision}


def _is_later(value: bytes, text: bytes) -> bool:
    """Whether an entry is of a later time than a text that bears a date: its own date, else its revision."""
    own, given = date_of(value, DIGITS), date_of(text)
    return given is not None and (decode_revision(value[:DIGITS]) if own is None else own) > given


def _new_text(operation: Operation, old: bytes | None, revision: bytes) -> bytes:
    if operation.code == Code.INCREMENT and old is not None:
        raise Refusal("compute", "", old, revision)  # the client adds, and writes the sum if nobody was faster
    if operation.code != Code.APPEND:
        return operation.text
    if old is not None and not old.startswith(b"["):
        raise Refusal("mismatch")
    items = [text for text in ((old or b"[]")[1:-1], operation.text) if text]
    return b"[" + b",".join(items) + b"]"


def stage(parts: list[tuple[Part, Cell]]) -> list[Staged] | Refused:
    """All parts made ready, or why not; where several keys are not as expected, all of them are named."""
    staged = [Staged(part, cell) for part, cell in parts]
    stale: list[tuple[int, int]] = []
    for i, one in enumerate(staged):
        for j, operation in enumerate(one.part.operations):
            try:
                one.operate(operation)
            except Refusal as refusal:
                if refusal.why != "stale":
                    return refusal.at(i, j)
                stale.append((i, j))
        try:
            one.check_limits()
        except Refusal as refusal:
            return refusal.at(i, -1)
    return Refused("stale", stale) if stale else staged


def next_revision(now: int, cells: list[Cell]) -> bytes:
    """A revision above all that these scopes have had."""
    previous = max((max(cell.revision, cell.head.get(Field.TEMP_REVISION, ZERO)) for cell in cells), default=ZERO)
    return encode_revision(max(decode_revision(previous) + 1, now))


def written(staged: list[Staged], revision: bytes, *, created: bool = False) -> Written:
    """What a write that was applied answers; `created`: the first part's scope is new, whatever its keys."""
    return Written(
        revision,
        [
            WrittenPart(INCARNATION, DURABLE, one.changed or (created and i == 0), one.results, *one.before)
            for i, one in enumerate(staged)
        ],
    )
