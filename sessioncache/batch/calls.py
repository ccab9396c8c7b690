"""The calls of a batch on one handle: each is checked and recorded now, and made when the block of the batch ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from sessioncache.batch.result import Pending
from sessioncache.handle.base import Handle, gone_keys
from sessioncache.hot.limits import check_size
from sessioncache.namespace import Namespace
from sessioncache.operations.touch import check_title, counting
from sessioncache.primitives import arithmetic
from sessioncache.primitives.session_info import SessionInfo
from sessioncache.primitives.values import Json, check_mapping, check_revision, decode_value, encode_value
from sessioncache.records import Record, upsert_of
from sessioncache.session import Session

H = TypeVar("H", bound=Handle)

Note = Callable[[Callable[[], Awaitable[Any]]], Pending[Any]]
"""Records a call that is made later."""


class BatchCalls(Generic[H]):
    """The calls of a batch on one session, namespace or shared scope.

    Arguments are taken as they are when the call is recorded; those that cannot be used raise there and then.

    Raises:
        InvalidNameError: A name or key cannot be used.
        InvalidValueError: A value is not exactly a JSON value.
        LimitExceededError: The call is larger than one of the documented limits.
    """

    __slots__ = ("_handle", "_note")

    def __init__(self, handle: H, note: Note) -> None:
        self._handle = handle
        self._note = note

    def get(self, key: str, default: Any = None) -> Pending[Any]:
        """See `Session.get`."""
        self._handle._split(key)
        return self._note(lambda: self._handle.get(key, default))

    def refresh(self) -> Pending[None]:
        """See `Session.refresh`; the new state is in the handle."""
        return self._note(self._handle.refresh)

    def set(self, key: str, value: Json) -> Pending[int]:
        """See `Session.set`."""
        self._handle._split(key)
        kept = kept_value(key, value)
        return self._note(lambda: self._handle.set(key, kept))

    def update(
        self, mapping: Mapping[str, Json], *, delete: Iterable[str] = (), if_revision: int | None = None
    ) -> Pending[int]:
        """See `Session.update`."""
        kept, size = _measured(mapping, self._handle._split)
        gone = gone_keys(kept, delete)
        for key in gone:
            self._handle._split(key)
        check_size(len(kept) + len(gone), size)
        if if_revision is not None:
            check_revision("if_revision", if_revision)
        return self._note(lambda: self._handle.update(kept, delete=gone, if_revision=if_revision))

    def delete(self, key: str) -> Pending[bool]:
        """See `Session.delete`."""
        self._handle._split(key)
        return self._note(lambda: self._handle.delete(key))

    def increment(self, key: str, by: float = 1) -> Pending[Any]:
        """See `Session.increment`."""
        self._handle._split(key)
        arithmetic.check(key, by)
        encode_value(key, by)
        return self._note(lambda: self._handle.increment(key, by))

    def append(self, key: str, *items: Json) -> Pending[int]:
        """See `Session.append`."""
        self._handle._split(key)
        kept = [kept_value(f"{key}[+{index}]", item) for index, item in enumerate(items)]
        return self._note(lambda: self._handle.append(key, *kept))


class SessionCalls(BatchCalls[Session]):
    """The calls of a batch on one session."""

    __slots__ = ()

    def touch(self, *, messages: int = 0, tokens: int = 0, first_message: str | None = None) -> Pending[SessionInfo]:
        """See `Session.touch`."""
        counting(messages, tokens, first_message)
        return self._note(lambda: self._handle.touch(messages=messages, tokens=tokens, first_message=first_message))

    def rename(self, title: str) -> Pending[SessionInfo]:
        """See `Session.rename`."""
        check_title(title)
        return self._note(lambda: self._handle.rename(title))

    def records(self) -> Pending[list[Record]]:
        """See `Session.records`."""
        return self._note(self._handle.records)

    def upsert_record(self, record: Record) -> Pending[bool]:
        """See `Session.upsert_record`."""
        upsert_of(record)
        kept = replace(record, value=kept_value(record.key, record.value))
        return self._note(lambda: self._handle.upsert_record(kept))

    def clear(self) -> Pending[int]:
        """See `Session.clear`."""
        return self._note(self._handle.clear)


class NamespaceCalls(BatchCalls[Namespace]):
    """The calls of a batch on one namespace."""

    __slots__ = ()

    def items(self) -> Pending[list[tuple[str, Any]]]:
        """See `Namespace.items`."""
        return self._note(self._handle.items)

    def clear(self) -> Pending[int]:
        """See `Namespace.clear`."""
        return self._note(self._handle.clear)


def kept_values(mapping: Mapping[str, Json], check_key: Callable[[object], object]) -> dict[str, Json]:
    """Values by their keys, both checked, as copies that later changes by the caller do not reach."""
    return _measured(mapping, check_key)[0]


def _measured(mapping: Mapping[str, Json], check_key: Callable[[object], object]) -> tuple[dict[str, Json], int]:
    """The same, and the bytes of JSON of the values."""
    kept: dict[str, Json] = {}
    size = 0
    for key, value in check_mapping("what is set", mapping).items():
        check_key(key)
        text = encode_value(key, value)
        size += len(text)
        kept[key] = _unmoved(value, text)
    return kept, size


def kept_value(key: str, value: Json) -> Json:
    """A value, checked, as a copy that later changes by the caller do not reach (R19)."""
    return _unmoved(value, encode_value(key, value))


def _unmoved(value: Json, text: bytes) -> Json:
    return decode_value(text) if isinstance(value, (list, dict)) else value
