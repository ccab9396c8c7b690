"""Limits: what one call may change.  Pure: no I/O.

Redis does one thing at a time, and a call is one script: its size is limited, so that no call holds others up for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessioncache.errors import LimitExceededError
from sessioncache.hot.messages import Operation
from sessioncache.settings import MAX_CALL_BYTES, MAX_CALL_KEYS, MAX_FORK_NAMESPACES

_SPLIT = "nothing was written: split the call into several"


def is_within(keys: int, size: int) -> bool:
    """Whether one script may change so many keys and bytes of values."""
    return keys <= MAX_CALL_KEYS and size <= MAX_CALL_BYTES


def check_size(keys: int, size: int) -> None:
    """LimitExceededError where one call would change more keys, or bytes of values, than it may."""
    if keys > MAX_CALL_KEYS:
        raise LimitExceededError(f"one call would change {keys} keys, at most {MAX_CALL_KEYS} are allowed; {_SPLIT}")
    if size > MAX_CALL_BYTES:
        raise LimitExceededError(
            f"one call would write {size} bytes of values as JSON, at most {MAX_CALL_BYTES} are allowed; {_SPLIT}"
        )


def check_fork(namespaces: int) -> None:
    """LimitExceededError where a session has more namespaces than one script can fork."""
    if namespaces > MAX_FORK_NAMESPACES:
        raise LimitExceededError(
            f"the session has {namespaces} namespaces, a fork copies at most {MAX_FORK_NAMESPACES}: nothing was "
            "written; clear those that are not needed any more, or write the new session by calls of its own"
        )


def size_of(parts: Iterable[Sequence[Operation]]) -> int:
    """Bytes of the values that operations write."""
    return sum([len(operation.text) for operations in parts for operation in operations])
