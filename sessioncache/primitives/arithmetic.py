"""Adding numbers exactly, where Lua's doubles could not.  Pure: no I/O."""

from __future__ import annotations

import math

from sessioncache.errors import InvalidValueError, TypeMismatchError


def check(key: str, by: object) -> None:
    """Raise InvalidValueError unless `by` is an int or a finite float."""
    if type(by) is int or (type(by) is float and math.isfinite(by)):
        return
    raise InvalidValueError(f"{key!r} can be incremented by a number only", path=key, type_name=type(by).__name__)


def add(key: str, value: object, by: float) -> int | float:
    """The sum; TypeMismatchError where `value` is not a number, InvalidValueError where the sum is not finite."""
    if type(value) is not int and type(value) is not float:
        raise TypeMismatchError(f"the value of {key!r} is not a number; nothing was written", key=key)
    try:
        total: int | float = value + by
    except OverflowError:
        raise InvalidValueError(f"the sum at {key!r} is too large for a float", path=key, type_name="float") from None
    check(key, total)
    return total
