"""Drafts: several keys are read, changed locally, and written in one step only if nobody else changed them
meanwhile.

Optimistic concurrency key by key: only what differs is written, each key under the revision that the draft has read.
So two drafts that change different keys of one scope both succeed, and none writes back what it merely read (R2).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from sessioncache.errors import InvalidNameError
from sessioncache.hot.messages import ABSENT, ANY
from sessioncache.primitives.revisions import DIGITS
from sessioncache.primitives.timestamps import json_of
from sessioncache.primitives.values import decode_entry, encode_value

if TYPE_CHECKING:
    from sessioncache.handle.base import Handle


class KeyChange(NamedTuple):
    """One key that a draft changed."""

    key: str
    text: bytes | None
    """The new text; None: deleted."""
    expected: bytes
    """The revision that the draft read; ABSENT where there was nothing."""


class Draft(MutableMapping[str, Any]):
    """A dict-like copy of a handle's keys; changes inside its values count too."""

    def __init__(self, values: dict[str, bytes], session_id: str = "") -> None:
        self._read = values
        self._session_id = session_id
        self._mine: dict[str, Any] = {}
        self._gone: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if key not in self._mine:
            if key in self._gone:
                raise KeyError(key)
            # Decoded once and kept: the caller may change the value in place, which `changes` has to see.
            self._mine[key] = decode_entry(self._read[key], key, self._session_id)
        return self._mine[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if type(key) is not str:
            raise InvalidNameError(f"a key must be a str, not {type(key).__name__}")
        self._mine[key] = value
        self._gone.discard(key)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._mine.pop(key, None)
        self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._mine or (key in self._read and key not in self._gone)

    def __iter__(self) -> Iterator[str]:
        yield from [key for key in self._read if key not in self._gone]
        yield from [key for key in self._mine if key not in self._read]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def changes(self) -> list[KeyChange]:
        """What differs from what was read; raises InvalidValueError for what is no JSON value."""
        # A key that was not read may have been set and deleted within the draft: there is nothing to delete.
        found = [KeyChange(k, None, self._read[k][:DIGITS]) for k in sorted(self._gone) if k in self._read]
        for key, value in self._mine.items():
            # As texts: 1, 1.0 and True are equal in Python, and different values as JSON (R19).
            text, before = encode_value(key, value), self._read.get(key)
            if before is None or json_of(before, DIGITS) != text:
                # R2: a key that was not there must still be absent, or what somebody has set since would be lost.
                found.append(KeyChange(key, text, ABSENT if before is None else before[:DIGITS]))
        return found


class Edit:
    """The block of ``async with handle.edit() as draft``."""

    def __init__(self, handle: Handle, *, overwrite: bool) -> None:
        self._handle = handle
        self._overwrite = overwrite
        self._draft: Draft | None = None

    async def __aenter__(self) -> Draft:
        self._draft = Draft(dict(await self._handle.read_all()), self._handle.of_session)
        return self._draft

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        draft, self._draft = self._draft, None
        if kind is None and draft is not None:
            changes = draft.changes()
            if self._overwrite:
                changes = [change._replace(expected=ANY) for change in changes]
            await self._handle.apply(changes)
