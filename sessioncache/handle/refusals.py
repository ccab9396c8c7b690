"""Refusals: the error that a caller gets for a write that Redis refused.  Nothing of it was applied.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from sessioncache.errors import (
    LimitExceededError,
    SessionCacheError,
    StaleLeaseError,
    StaleSessionError,
    TypeMismatchError,
)
from sessioncache.hot.messages import Refused
from sessioncache.settings import MAX_REPLACED_BYTES, MAX_SCOPE_BYTES, MAX_SCOPE_KEYS, MAX_VALUE_BYTES

_LIMITS = {
    "value": f"the value would have more than {MAX_VALUE_BYTES} bytes as JSON",
    "keys": f"the scope would have more than {MAX_SCOPE_KEYS} keys",
    "bytes": f"the scope would have more than {MAX_SCOPE_BYTES} bytes of values",
    "replaced": f"one call would replace more than {MAX_REPLACED_BYTES} bytes of values: split it into several",
}


def raise_refusal(why: str) -> None:
    """Raise the error of a write that was refused for a reason that has nothing to do with its keys."""
    if why == "lease":
        raise StaleLeaseError("the run lease was lost; nothing was written")
    if why == "erased":
        raise StaleSessionError("writes for this user are blocked for a minute after an erasure; nothing was written")


def error_of(refused: Refused, keys: Sequence[str]) -> SessionCacheError:
    """The error of a write that was refused; `keys`: those that it was refused for, as the caller writes them.

    StaleLeaseError, or StaleSessionError for a user who was just erased, is raised.
    """
    raise_refusal(refused.why)
    if refused.why == "stale":
        what = f"the keys {', '.join(map(repr, keys))} were changed" if keys else "the keys were changed"
        return StaleSessionError(f"{what} by somebody else since they were read; nothing was written", keys=tuple(keys))
    # Only of an append: numbers that Lua cannot add are added by the client, which finds such a value itself.
    if refused.why == "mismatch":
        return TypeMismatchError(f"the value of {keys[0]!r} is not a list; nothing was written", key=keys[0])
    return LimitExceededError(_LIMITS[refused.detail] + "; nothing was written")
