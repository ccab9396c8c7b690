"""State: what a handle knows of its keys, from what it has read and written.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessioncache.dates import json_of
from sessioncache.revisions import DIGITS
from sessioncache.values import decode_value


class State(Mapping[str, Any]):
    """A read-only view of what a handle last read and wrote; every access decodes a value of its own."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, bytes]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return decode_value(json_of(self._values[key], DIGITS))

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def frozen(self) -> State:
        """What is seen now, unmoved by what the handle reads and writes from now on."""
        return State(self._values.copy())

    def __repr__(self) -> str:
        return f"<State of {len(self._values)} keys>"


class Known:
    """Keys with nine digits of revision and the text, as the handle's calls told them.

    Several calls of one handle may be under way at once, and answer in another order than Redis worked on them: what
    a call brings that began before another one wrote the key counts only if it is newer.
    """

    __slots__ = ("_count", "_written", "values")

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._written: dict[str, tuple[int, bytes]] = {}
        self._count = 0

    def begin(self) -> int:
        """A call begins; what it brings is told with this."""
        return self._count

    def write(self, began: int, key: str, revision: bytes, text: bytes | None) -> None:
        """A write set a key, or deleted it (None)."""
        if self._is_overtaken(began, key, revision):
            return
        self._count += 1
        self._written[key] = (self._count, revision)
        if text is None:
            self.values.pop(key, None)
        else:
            self.values[key] = revision + text

    def read(self, began: int, key: str, value: bytes | None) -> None:
        """A reading found a key, or did not (None)."""
        if self._is_overtaken(began, key, value[:DIGITS] if value else b""):
            return
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def replace(self, began: int, values: dict[str, bytes]) -> None:
        """A reading found these keys and no others."""
        if self._count > began:
            for key, (count, revision) in self._written.items():
                if count > began and values.get(key, b"")[:DIGITS] < revision:
                    values.pop(key, None)
                    if key in self.values:
                        values[key] = self.values[key]
        self.values = values

    def _is_overtaken(self, began: int, key: str, revision: bytes) -> bool:
        """Whether a newer write of the key was told after a call had begun."""
        count, written = self._written.get(key, (0, b""))
        return count > began and written > revision

    def copy(self) -> Known:
        """The same, to go its own way from here."""
        other = Known()
        other.values, other._written, other._count = self.values.copy(), self._written.copy(), self._count
        return other
