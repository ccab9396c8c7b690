"""Errors of the durable tier: two signals, and the table by which the drivers' errors are sorted (R10).

*Refused* is what the database, or its driver, says of the data: SQLSTATE classes 22 and 23, SQLite's constraints, a
value that the driver cannot encode.  Everything else is an outage, whatever it affects and however long it lasts.  An
outage may concern the whole database, or what one transaction touches (a row that others hold, a trigger that fails):
the latter is found by trying parts (see the worker's `isolation`).

Messages name the driver's error class and SQLSTATE, never its text: that may quote parameters, hence state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError, DisconnectionError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sessioncache.errors import DurableTierUnavailableError

_DRIVERS_ERRORS = (
    StatementError,
    DisconnectionError,
    PoolTimeoutError,
    sqlite3.Error,
    OSError,
    UnicodeError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an error means."""

    words: str
    """Its cause, in our own words."""
    refused: bool = False
    """Whether it is said of the data."""
    partial: bool = False
    """Whether it may concern what this transaction touches, while others can be committed."""
    cause: str = ""
    """The kind of an outage for code that reacts to it: `LOGIN`, `NAME`, `RIGHTS`, `SCHEMA`."""
    inherited: bool = False
    """Whether the cause may be a setting that a connection has from its beginning: other connections may do better."""


LOGIN, NAME, RIGHTS, SCHEMA = "login", "name", "rights", "schema"
_UPGRADE = "the database lacks our tables, or they are not this version's: run `sessioncache db upgrade`"
POINTER = ": `sessioncache doctor` names it"
_LOGIN = Verdict("it refuses the user name or password", cause=LOGIN)
_RIGHTS = Verdict(f"our role lacks a right{POINTER}", partial=True, cause=RIGHTS, inherited=True)
_SCHEMA = Verdict(_UPGRADE, partial=True, cause=SCHEMA, inherited=True)
_UNKNOWN = Verdict("", partial=True)

# By SQLSTATE, or the beginning of it: the longest match counts.
_BY_STATE: Mapping[str, Verdict] = {
    "22": Verdict("a value is refused", refused=True),
    "23": Verdict("a constraint is violated", refused=True),
    "08": Verdict("the connection broke"),
    "0A": Verdict("it cannot do what is asked for", partial=True),
    "25006": Verdict("it is read-only", inherited=True),
    "25P03": Verdict("it ended a transaction that was idle for too long", partial=True),
    "25P04": Verdict("it ended a transaction that took too long", partial=True),
    "28": _LOGIN,
    "28000": Verdict("it does not let this role in", cause=LOGIN),
    "3D000": Verdict("there is no such database", cause=NAME),
    "3F000": _RIGHTS,  # a role that may use no schema: there is none to create tables in
    "40": Verdict("others changed the same rows at the same time", partial=True),
    "42": Verdict("a statement does not fit its tables, or a trigger of theirs", partial=True),
    "42501": _RIGHTS,
    "42703": _SCHEMA,
    "42P01": _SCHEMA,
    # What is too large may be one value, for an index of the operator's own: this says nothing of the value as such,
    # and goes with the index.
    "54": Verdict("a limit of the server is exceeded", partial=True, inherited=True),
    "53100": Verdict("its disk is full", partial=True),
    "53200": Verdict("it is out of memory", partial=True),
    "53300": Verdict("it has too many connections"),
    "53400": Verdict("a limit of the server is exceeded", partial=True, inherited=True),
    "53": Verdict("it lacks resources", partial=True),
    "55": Verdict("something is not in a state for it", partial=True),
    "55P03": Verdict("others hold a lock for too long", partial=True),
    "57014": Verdict("a statement took too long, or was cancelled", partial=True, inherited=True),
    "57P": Verdict("it is starting, or shutting down"),
    "58": Verdict("its files or its disk fail", partial=True),
    "P0": Verdict("a trigger or function of the database fails", partial=True),
    "XX": Verdict("it reports an internal error, or damaged data", partial=True),
}
# By SQLite's primary code.
_BY_CODE: Mapping[int, Verdict] = {
    sqlite3.SQLITE_CONSTRAINT: Verdict("a constraint is violated", refused=True),
    sqlite3.SQLITE_MISMATCH: Verdict("a value is refused", refused=True),
    sqlite3.SQLITE_TOOBIG: Verdict("a value is too large", refused=True),
    sqlite3.SQLITE_BUSY: Verdict("others hold it for too long"),
    sqlite3.SQLITE_LOCKED: Verdict("others hold it for too long"),
    sqlite3.SQLITE_READONLY: Verdict("it is read-only", inherited=True),
    sqlite3.SQLITE_PERM: Verdict("the file may not be opened"),
    sqlite3.SQLITE_AUTH: _RIGHTS,
    sqlite3.SQLITE_FULL: Verdict("its disk is full"),
    sqlite3.SQLITE_IOERR: Verdict("its disk fails"),
    sqlite3.SQLITE_CORRUPT: Verdict("its data is damaged", partial=True),
    sqlite3.SQLITE_NOTADB: Verdict("the file is no SQLite database"),
    sqlite3.SQLITE_CANTOPEN: Verdict("the file cannot be opened"),
    sqlite3.SQLITE_NOMEM: Verdict("it is out of memory", partial=True),
    sqlite3.SQLITE_INTERRUPT: Verdict("a statement was cancelled", partial=True),
    sqlite3.SQLITE_SCHEMA: _SCHEMA,
}
# What the drivers raise before they ask the server, by class: they cannot encode a value.
_BY_CLASS = frozenset({"DataError", "UnicodeError", "OverflowError"})
# What drivers say where no connection could be made, which has no SQLSTATE, and what we say: never their text.
_BY_TEXT: Mapping[str, Verdict] = {
    "root certificate file": Verdict("the file of the certificates to trust (sslrootcert) is missing"),
    "certificate verify failed": Verdict("its TLS certificate is not trusted here, or is out of date"),
    "does not match host name": Verdict("its TLS certificate is for another name"),
    "does not support SSL": Verdict("it speaks no TLS, which the URL asks for"),
    "SSL error": Verdict("no TLS comes about with it"),
    "password authentication failed": _LOGIN,
    "no password supplied": Verdict("it asks for a password", cause=LOGIN),
    "does not exist": Verdict("there is no such database or role", cause=NAME),
    "onnection refused": Verdict("nobody listens there"),
    "No such file or directory": Verdict("nobody listens there"),
    "could not translate host name": Verdict("there is no such host"),
    "failed to resolve host": Verdict("there is no such host"),
    "too many clients": Verdict("it has too many connections"),
    "too many connections": Verdict("it has too many connections"),
    "remaining connection slots": Verdict("it has too many connections"),
    "the database system is": Verdict("it is starting, or shutting down"),
    "no such table": _SCHEMA,
    "no such column": _SCHEMA,
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


def is_inherited(error: DBAPIError) -> bool:
    """Whether the cause may be a setting that the connection began with, and that others need not have."""
    cause = error.orig
    return cause is not None and _verdict(cause, getattr(cause, "sqlstate", None)).inherited


def _translation(exc: Exception) -> Exception:
    cause: BaseException = exc.orig if isinstance(exc, StatementError) and exc.orig is not None else exc
    state = getattr(cause, "sqlstate", None)
    name = type(cause).__name__ + (f", SQLSTATE {state}" if state else "")
    verdict = _verdict(cause, state)
    if isinstance(exc, DBAPIError) and exc.connection_invalidated:
        verdict = Verdict(verdict.words or "the connection broke")
    if verdict.refused:
        return RefusedDataError(f"the database refuses the data ({name})")
    why = verdict.words
    told = f"the SQL database cannot be used{why and f': {why}'} ({name})"
    return DurableTierUnavailableError(told, _cause=verdict.cause, _partial=verdict.partial)


def _verdict(cause: BaseException, state: str | None) -> Verdict:
    if state:
        fits = (_BY_STATE[state[:length]] for length in (5, 3, 2) if state[:length] in _BY_STATE)
        return next(fits, _UNKNOWN)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _BY_CODE:
        return _BY_CODE[code & 0xFF]
    if not _BY_CLASS.isdisjoint(base.__name__ for base in type(cause).__mro__):
        return Verdict("the driver cannot encode a value", refused=True)
    if isinstance(cause, TimeoutError):
        return Verdict("it did not answer in time")
    # Without a connection, an unknown error concerns the whole database.
    unknown = _UNKNOWN if isinstance(cause, sqlite3.Error) else Verdict("")
    return next((verdict for text, verdict in _BY_TEXT.items() if text in str(cause)), unknown)
