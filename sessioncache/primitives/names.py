"""Names and prefixes: which names are accepted, and which scope a key lives in (R20).

Pure: no I/O.  Names are kept verbatim or refused, never trimmed or folded.
"""

from __future__ import annotations

import secrets
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from sessioncache.errors import InvalidNameError

USER_PREFIX = "user:"
APP_PREFIX = "app:"
TEMP_PREFIX = "temp:"

MAX_NAME_BYTES = 256


class KeyScope(StrEnum):
    """Where a key lives: four of the merged state, or a namespace beside it."""

    SESSION = "session"
    USER = "user"
    APP = "app"
    TEMP = "temp"
    NAMESPACE = "namespace"


_PREFIXES = {KeyScope.USER: USER_PREFIX, KeyScope.APP: APP_PREFIX, KeyScope.TEMP: TEMP_PREFIX}


class Key(NamedTuple):
    """A key taken apart: its scope, and its name there (without prefix)."""

    scope: KeyScope
    name: str

    def __str__(self) -> str:
        return _PREFIXES.get(self.scope, "") + self.name


def check_name(what: str, name: object, *, empty: bool = False) -> str:
    """Return `name` unchanged, or raise InvalidNameError saying `what` is wrong with it."""
    if type(name) is not str:
        raise InvalidNameError(f"{what} must be a str, not {type(name).__name__}")
    if not name and not empty:
        raise InvalidNameError(f"{what} must not be empty")
    try:
        size = len(name) if name.isascii() else len(name.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidNameError(f"{what} contains a lone surrogate, which no database can store") from None
    if size > MAX_NAME_BYTES:
        raise InvalidNameError(f"{what} has {size} bytes of UTF-8, at most {MAX_NAME_BYTES} are allowed")
    if "\0" in name:
        raise InvalidNameError(f"{what} contains a NUL character")
    return name


def split_key(key: object) -> Key:
    """Take a prefixed key apart; only the first prefix counts, and only in exactly this case.

    ``app:temp:x`` is the app key ``temp:x``; ``foo:x`` and ``APP:x`` are session keys.
    """
    if type(key) is not str:
        raise InvalidNameError(f"a key must be a str, not {type(key).__name__}")
    return _split(key)


@lru_cache(maxsize=8192)
def _split(key: str) -> Key:
    if key.startswith(USER_PREFIX):
        return Key(KeyScope.USER, check_name("a key", key[len(USER_PREFIX) :], empty=True))
    if key.startswith(APP_PREFIX):
        return Key(KeyScope.APP, check_name("a key", key[len(APP_PREFIX) :], empty=True))
    if key.startswith(TEMP_PREFIX):
        return Key(KeyScope.TEMP, check_name("a key", key[len(TEMP_PREFIX) :], empty=True))
    return Key(KeyScope.SESSION, check_name("a key", key))


def new_session_id() -> str:
    """A fresh session id: ``sess_`` and 24 hexadecimal digits (96 random bits)."""
    return "sess_" + secrets.token_hex(12)
