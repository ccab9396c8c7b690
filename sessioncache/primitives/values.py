"""Values: exactly the JSON types, encoded once and decoded to exactly what was given (R19).

The text is UTF-8 JSON; strings with lone surrogates are escaped, so that every database stores the text as it is.
msgspec does the work; the standard library takes over where msgspec refuses (lone surrogates).
Pure: no I/O.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from sessioncache.errors import DamagedValueError, InvalidValueError, LimitExceededError
from sessioncache.primitives.revisions import DIGITS, LARGEST
from sessioncache.primitives.timestamps import DATE_MARK, json_of
from sessioncache.settings import MAX_VALUE_BYTES

logger = logging.getLogger(__name__)

Json = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A JSON value: what a key can hold."""

MAX_DEPTH = 256
"""Deepest nesting of lists and dicts; deeper ones could not be decoded on every stack."""
MAX_INTEGER_DIGITS = 4_300
"""Longest integer: what Python converts to and from text by default."""

_MOST_NAMED = 10
_TOO_LARGE = 10**MAX_INTEGER_DIGITS
_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_TEXT = slice(DIGITS, None)
"""The text of an entry, which may have a caller timestamp."""
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PLAIN = frozenset({str, bool, type(None)})


def encode_value(key: str, value: object) -> bytes:
    """The exact JSON text of `value`.

    Raises InvalidValueError with the path (``cfg.items[2].price``) of what is not exactly a JSON value, and
    LimitExceededError where the text has more than MAX_VALUE_BYTES.
    """
    if type(value) not in _PLAIN:
        _check(key, value)
    try:
        text = _encode(value)
    except (UnicodeEncodeError, ValueError):
        _check_surrogates(key, value)
        text = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_VALUE_BYTES:
        raise LimitExceededError(
            f"the value of {key!r} has {len(text)} bytes as JSON, at most {MAX_VALUE_BYTES} are allowed"
        )
    return text


def check_mapping(what: str, given: object) -> Mapping[str, Any]:
    """The mapping that a caller gave; InvalidValueError for anything else."""
    if not isinstance(given, Mapping):
        raise _unfit(what, given, "a mapping of keys to values")
    return given


def check_flag(what: str, given: object) -> bool:
    """The bool that a caller gave; InvalidValueError for anything else: "false" would mean true."""
    if type(given) is not bool:
        raise _unfit(what, given, "a bool")
    return given


def check_revision(what: str, given: object) -> int:
    """The revision that a caller gave; InvalidValueError for what never is one."""
    if type(given) is not int:
        raise _unfit(what, given, "a revision, which is an int")
    if not 0 <= given <= LARGEST:
        raise InvalidValueError(f"{what} must be a revision, from 0 to {LARGEST}", path=what, type_name="int")
    return given


def _unfit(what: str, given: object, wanted: str) -> InvalidValueError:
    kind = type(given).__name__
    return InvalidValueError(f"{what} must be {wanted}, not {kind}", path=what, type_name=kind)


def decode_entry(value: bytes, key: str = "", session_id: str = "") -> Any:
    """The value of an entry as Redis holds it: nine digits of revision and the text, which may have a caller timestamp.

    DamagedValueError, which names key and session, and quotes nothing.
    """
    try:
        return _decode(value[_TEXT] if value[DIGITS] != DATE_MARK else json_of(value, DIGITS))
    except _UNREADABLE:
        return _decode_slowly(json_of(value, DIGITS), key, session_id)


def decode_value(text: bytes, key: str = "", session_id: str = "") -> Any:
    """The value of a JSON text, a new object at every call.  DamagedValueError as in `decode_entry`."""
    try:
        return _decode(text)
    except _UNREADABLE:
        return _decode_slowly(text, key, session_id)


def readable(entries: Mapping[str, bytes], session_id: str) -> tuple[dict[str, Any], list[str]]:
    """The values of entries by key, sorted, and the keys of those that are damaged."""
    values: dict[str, Any] = {}
    damaged = []
    for key in sorted(entries):
        try:
            values[key] = decode_entry(entries[key], key, session_id)
        except DamagedValueError:
            damaged.append(key)
    return values, damaged


def tell_damaged(session_id: str, keys: Sequence[str], space: str = "") -> None:
    """Log which keys of a session, or of one of its namespaces, were left out."""
    if keys:
        where = f"the namespace {space!r} of " if space else ""
        logger.warning(
            "%d keys of %sthe session %r are left out, since what is stored of them is no JSON text: %s",
            len(keys),
            where,
            session_id,
            ", ".join(map(repr, keys[:_MOST_NAMED])),
        )


def _decode_slowly(text: bytes, key: str, session_id: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_constant=_refuse_constant)
    whose = f" of the session {session_id!r}" if session_id else ""
    raise DamagedValueError(
        f"what is stored of the key {key!r}{whose} is no JSON text: set the key again, or delete it",
        key=key,
        session_id=session_id,
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _check(key: str, value: object) -> None:
    """Refuse everything below `value` that is not exactly a JSON type."""
    level: list[tuple[object, _Path]] = [(value, _Path(key))]
    depth = items = 0
    while level:
        depth += 1
        below: list[tuple[object, _Path]] = []
        for item, path in level:
            kind = type(item)
            if kind is dict or kind is list:
                if depth > MAX_DEPTH:
                    told = f"the value of {key!r} is nested more than {MAX_DEPTH} levels deep (or contains itself)"
                    raise _refused(path, kind, told)
                below.extend(_children(item, path))
                # Each item is a byte at least; what contains itself twice would fill the memory before it is too deep.
                if items + len(below) > MAX_VALUE_BYTES:
                    raise LimitExceededError(
                        f"the value of {key!r} has more than {MAX_VALUE_BYTES} bytes as JSON (or contains itself)"
                    )
            elif kind not in _PLAIN:
                _check_number(item, path)
        items += len(below)
        level = below


class _Path:
    """Where in a value we are; written out only when something is refused."""

    __slots__ = ("above", "step")

    def __init__(self, step: str | int, above: _Path | None = None) -> None:
        self.step = step
        self.above = above

    def __str__(self) -> str:
        if self.above is None:
            return str(self.step)
        return f"{self.above}[{self.step}]" if isinstance(self.step, int) else f"{self.above}.{self.step}"


def _children(item: object, path: _Path) -> Iterator[tuple[object, _Path]]:
    if isinstance(item, dict):
        for name, value in item.items():
            if type(name) is not str:
                raise _refused(path, type(name), f"a dict key at {path} is of type {type(name).__name__}, not str")
            if type(value) not in _PLAIN:
                yield value, _Path(name, path)
    elif isinstance(item, list):
        for index, value in enumerate(item):
            if type(value) not in _PLAIN:
                yield value, _Path(index, path)


def _check_number(item: object, path: _Path) -> None:
    kind = type(item)
    if kind is float:
        assert isinstance(item, float)
        if not math.isfinite(item):
            raise _refused(path, kind, f"the value at {path} is not a finite number, which JSON cannot hold")
    elif kind is int:
        assert isinstance(item, int)
        if abs(item) >= _TOO_LARGE:
            raise _refused(path, kind, f"the integer at {path} has more than {MAX_INTEGER_DIGITS} digits")
    else:
        raise _refused(path, kind, f"the value at {path} is of type {kind.__name__}, which is not exactly a JSON type")


def _refused(path: _Path, kind: type, message: str) -> InvalidValueError:
    return InvalidValueError(message, path=str(path), type_name=kind.__name__)


def _check_surrogates(key: str, value: object) -> None:
    """Refuse a high followed by a low lone surrogate: as JSON text they are one character."""
    todo: list[tuple[object, _Path]] = [(value, _Path(key))]
    while todo:
        item, path = todo.pop()
        if isinstance(item, str) and _SURROGATE_PAIR.search(item):
            raise _refused(path, str, f"the string at {path} has a high and a low lone surrogate side by side")
        if isinstance(item, dict):
            todo.extend((name, _Path("(key)", path)) for name in item)
            todo.extend((below, _Path(name, path)) for name, below in item.items())
        elif isinstance(item, list):
            todo.extend((below, _Path(index, path)) for index, below in enumerate(item))
