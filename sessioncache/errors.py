"""The errors of sessioncache: one tree, each also the built-in error a caller may already catch.

::

    SessionCacheError
    ├── SessionNotFoundError (LookupError)      no such session, or another life of it
    ├── SessionExistsError (ValueError)         create or fork under a taken id
    ├── AmbiguousSessionError (LookupError)     several sessions bear the id
    ├── StaleSessionError                       somebody changed it since it was read
    ├── NoSessionError (LookupError)            no ambient session
    ├── StaleLeaseError                         the lease was lost
    ├── LeaseUnavailableError                   another runner holds the lease
    ├── InvalidValueError (ValueError)          not exactly a JSON value
    ├── DamagedValueError (ValueError)          what is stored of a key, or of a scope, cannot be read
    ├── InvalidNameError (ValueError)           not a usable org, app, user, session id or key
    ├── TypeMismatchError (ValueError)          increment of a text, append to a number
    ├── LimitExceededError (ValueError)         a documented limit
    ├── HotTierUnavailableError (ConnectionError)
    ├── DurableTierUnavailableError (ConnectionError)
    ├── MemoryFullError                         Redis refuses writes, reads work on
    ├── BackPressureError                       too much is waiting for SQL
    ├── OutcomeUnknownError (TimeoutError)      the write may or may not have happened
    ├── PartlyAppliedError                      one step of two happened
    ├── FlushTimeoutError (TimeoutError)        not durable in time, still dirty
    ├── DeadLetterError                         the database refuses a value
    ├── WriteLostError                          Redis forgot a write before it was durable
    ├── ConfigurationError (ValueError)         settings, URLs, tiers that do not fit together
    └── SchemaVersionError                      the database schema is not this version's

No message contains a state value, the content of a ``temp:`` key, or a password.
"""

from __future__ import annotations

from typing import Any, Self


class SessionCacheError(Exception):
    """Base of all errors of sessioncache.  Data is in attributes; every error can be pickled."""

    def __init__(self, message: str = "", **data: Any) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0])
        self._data = data
        for name, value in data.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self._data)

    @classmethod
    def _make(cls, message: str, data: dict[str, Any]) -> Self:
        return cls(message, **data)


def _rebuild(cls: type[SessionCacheError], message: str, data: dict[str, Any]) -> SessionCacheError:
    return cls._make(message, data)


class SessionNotFoundError(SessionCacheError, LookupError):
    """There is no such session, or the handle belongs to an earlier life of it."""

    session_id: str
    """The id that was asked for."""


class SessionExistsError(SessionCacheError, ValueError):
    """A session with this id exists already; nothing was changed."""

    session_id: str
    """The id that is taken."""


class AmbiguousSessionError(SessionCacheError, LookupError):
    """Several sessions bear this id; name the user."""

    session_id: str
    """The id that was asked for."""


class StaleSessionError(SessionCacheError):
    """Something else changed what this write was based on; nothing was written."""

    keys: tuple[str, ...] = ()
    """The keys that were changed by others, with their prefixes; empty where the revision was the condition."""


class NoSessionError(SessionCacheError, LookupError):
    """No session is bound to this task or thread."""


class StaleLeaseError(SessionCacheError):
    """The lease was lost; nothing was written."""


class LeaseUnavailableError(SessionCacheError):
    """Another runner holds the lease."""


class InvalidValueError(SessionCacheError, ValueError):
    """A value is not exactly a JSON value; nothing was written."""

    path: str
    """Where in the value, as in ``cfg.items[2].price``."""
    type_name: str
    """The type that was found there."""


class DamagedValueError(SessionCacheError, ValueError):
    """What a tier holds of a key is no JSON text (set the key again, or delete it), or Redis holds of a whole scope
    something else than was written."""

    key: str
    """The key, as the handle that read it names it; empty where a whole scope is damaged."""
    session_id: str
    """The session; empty where it is not known, or the key was read through the shared scope of a user or app."""
    scope: str = ""
    """Where a whole scope is damaged: what the names of its keys in Redis end with."""


class InvalidNameError(SessionCacheError, ValueError):
    """A name (org, app, user, session id, namespace or key) cannot be used."""

    path: str = ""
    """Of the agent tool: the argument."""


class TypeMismatchError(SessionCacheError, ValueError):
    """The stored value has not the type this operation needs; nothing was written."""

    key: str
    """The key, with its prefix."""


class LimitExceededError(SessionCacheError, ValueError):
    """A documented limit would be exceeded; nothing was written."""


class HotTierUnavailableError(SessionCacheError, ConnectionError):
    """Redis cannot be reached; the call had no effect."""

    _fate = ""  # what became of the command, for our own repeats (see hot/errors.py)


class DurableTierUnavailableError(SessionCacheError, ConnectionError):
    """The SQL database cannot be reached, or cannot do its work; hot sessions work on."""

    # For our own reactions (see durable/errors.py): the kind of its cause, and whether it may be of one scope only.
    _cause = ""
    _partial = False


class MemoryFullError(SessionCacheError):
    """Redis is out of memory and refuses writes; reads and flushing work on."""


class BackPressureError(SessionCacheError):
    """Too much is waiting to be flushed; nothing was written."""

    dirty: int
    """Scopes that wait for SQL."""
    oldest_age: float
    """Seconds for which the oldest of them has waited."""


class OutcomeUnknownError(SessionCacheError, TimeoutError):
    """The connection failed after the write was sent: it may or may not have been applied."""


class PartlyAppliedError(SessionCacheError):
    """The session's and user's part was written, the app's part was not."""


class FlushTimeoutError(SessionCacheError, TimeoutError):
    """Not everything became durable in time; it is still waiting in Redis."""


class DeadLetterError(SessionCacheError):
    """The database refuses a value that this handle wrote."""

    keys: tuple[str, ...] = ()
    """The keys of one scope whose values are refused, without prefix."""


class WriteLostError(SessionCacheError):
    """Redis forgot a write before it was durable, or it cannot be shown any more that it did not."""

    keys: tuple[str, ...] = ()
    """The keys of one scope that were written, without prefix."""


class ConfigurationError(SessionCacheError, ValueError):
    """Settings, URLs or tiers that cannot work together."""

    _login = False  # whether a password is refused, which may be about to change


class SchemaVersionError(SessionCacheError):
    """The database schema is not the one this version needs."""

    found: str | None
    """The revision of the database; None where it has no schema of ours."""
    needed: str
    """The revision that this version needs."""
