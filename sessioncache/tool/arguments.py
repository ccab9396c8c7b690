"""Arguments: what a model asks of the agent tool, checked before anything is done.  Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any, NamedTuple

from sessioncache.errors import InvalidNameError, InvalidValueError
from sessioncache.primitives.names import check_name
from sessioncache.primitives.values import encode_value

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "get": ("key",),
    "set": ("key", "value"),
    "delete": ("key",),
    "list": (),
    "clear": (),
}
"""Operation -> the arguments it takes besides the namespace."""

_KNOWN = ("operation", "namespace", "key", "value")


class ToolCall(NamedTuple):
    """What is to be done; arguments that the operation does not take are empty."""

    operation: str
    namespace: str
    key: str = ""
    value: str = ""


def parse(arguments: Mapping[str, Any]) -> ToolCall:
    """The call that the arguments stand for.

    A null counts as absent.  An argument that the operation does not take may be there if it is null or empty, as
    models send it; with content it is refused, since a key given to `clear`, for example, shows that something else was
    meant. InvalidNameError or InvalidValueError (`.path`: the argument).
    """
    if not isinstance(arguments, Mapping):
        raise _wrong("", arguments, "the arguments must be an object")
    unknown = [name for name in arguments if name not in _KNOWN]
    if unknown:
        raise InvalidNameError(
            f"unknown arguments: {', '.join(map(short, unknown))}; there are {', '.join(_KNOWN)}", path=str(unknown[0])
        )
    operation = _operation(arguments.get("operation"))
    namespace = _name(arguments, "namespace", operation)
    taken = OPERATIONS[operation]
    for name in ("key", "value"):
        if name not in taken and arguments.get(name) not in (None, ""):
            raise InvalidValueError(
                f"{operation} takes no {name}", path=name, type_name=type(arguments.get(name)).__name__
            )
    key = _name(arguments, "key", operation) if "key" in taken else ""
    return ToolCall(operation, namespace, key, _value(arguments) if "value" in taken else "")


def from_text(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Arguments that may have come as JSON text; InvalidValueError where it is not JSON, or a name stands twice."""
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise _wrong("", arguments, "the arguments are not JSON, or name something twice") from None
    if not isinstance(parsed, dict):
        raise _wrong("", parsed, "the arguments must be a JSON object")
    return parsed


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that stands twice: a check of the arguments elsewhere may have seen the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _operation(operation: object) -> str:
    known = ", ".join(OPERATIONS)
    if operation is None:
        raise _wrong("operation", operation, f"operation is missing: one of {known}")
    if type(operation) is not str or operation not in OPERATIONS:
        raise _wrong("operation", operation, f"unknown operation {short(operation)}: it must be one of {known}")
    return operation


def _name(arguments: Mapping[str, Any], what: str, operation: str) -> str:
    name = arguments.get(what)
    if name is None:
        raise InvalidNameError(f"{what} is missing: {operation} needs it", path=what)
    try:
        return check_name(what, name)
    except InvalidNameError as error:
        raise InvalidNameError(str(error), path=what) from None


def _value(arguments: Mapping[str, Any]) -> str:
    value = arguments.get("value")
    if value is None:
        raise _wrong("value", value, "value is missing: set needs it")
    if type(value) is not str:
        raise _wrong("value", value, f"value must be a string, not {type(value).__name__}: write it as text")
    encode_value("value", value)
    return value


def _wrong(path: str, value: object, message: str) -> InvalidValueError:
    return InvalidValueError(message, path=path, type_name=type(value).__name__)
