"""What goes wrong in the durable tier: two private signals, and the one place where the drivers' errors are sorted.

Messages name the driver's error class and SQLSTATE, never its text: that may quote parameters, hence state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, DisconnectionError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sessioncache.errors import DurableTierUnavailableError

# SQLSTATE classes: data exception, integrity constraint violation, program limit exceeded.
_REFUSING_CLASSES = frozenset({"22", "23", "54"})
_REFUSING_ERRORS = frozenset({"DataError", "IntegrityError", "UnicodeError", "OverflowError"})
_DRIVERS_ERRORS = (
    StatementError,
    DisconnectionError,
    PoolTimeoutError,
    sqlite3.Error,
    OSError,
    UnicodeError,
    OverflowError,
)
_UNDEFINED_TABLE = "42P01"
# What drivers say where no connection comes about, which has no SQLSTATE, and what we say: never their text.
_SAYINGS = {
    "password authentication failed": "it refuses the user name or password",
    "no password supplied": "it asks for a password",
    "does not exist": "there is no such database or role",
    "onnection refused": "nobody listens there",
    "No such file or directory": "nobody listens there",
    "could not translate host name": "there is no such host",
    "failed to resolve host": "there is no such host",
    "unable to open database file": "the file cannot be opened",
    "database is locked": "others hold it for too long",
}


class RefusedDataError(Exception):
    """The database or its driver refuses something of the batch as data; nothing was written."""


class StaleReadingError(Exception):
    """The batch was read too long ago to be written; nothing was written (R14)."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn a driver's errors into DurableTierUnavailableError or RefusedDataError, without the driver's text."""
    try:
        yield
    except DurableTierUnavailableError:
        raise
    except _DRIVERS_ERRORS as exc:
        raise _translation(exc) from None


def _translation(exc: Exception) -> Exception:
    cause: BaseException = exc.orig if isinstance(exc, StatementError) and exc.orig is not None else exc
    state = getattr(cause, "sqlstate", None)
    name = type(cause).__name__ + (f", SQLSTATE {state}" if state else "")
    if _is_refusal(exc, cause, state):
        return RefusedDataError(f"the database refuses the data ({name})")
    if state == _UNDEFINED_TABLE or "no such table" in str(cause):
        return DurableTierUnavailableError(f"the database lacks our tables ({name}): run `sessioncache db upgrade`")
    why = next((ours for theirs, ours in _SAYINGS.items() if not state and theirs in str(cause)), "")
    return DurableTierUnavailableError(f"the SQL database cannot be used{why and f': {why}'} ({name})")


def _is_refusal(exc: Exception, cause: BaseException, state: str | None) -> bool:
    if isinstance(exc, DBAPIError) and exc.connection_invalidated:
        return False
    if state:
        return state[:2] in _REFUSING_CLASSES
    return not _REFUSING_ERRORS.isdisjoint(base.__name__ for base in type(cause).__mro__)
