"""Records: the private keys of a session, each with its value and the time of its last change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sessioncache.errors import InvalidNameError, InvalidValueError
from sessioncache.hot.fields import Code
from sessioncache.hot.messages import Operation
from sessioncache.primitives.names import KeyScope, split_key
from sessioncache.primitives.revisions import DIGITS, LARGEST, decode_revision, revision_time
from sessioncache.primitives.scopes import ScopeRef, hash_id, key_id
from sessioncache.primitives.timestamps import date_of, dated
from sessioncache.primitives.values import Json, encode_value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Record:
    """One private key of a session.

    For `upsert_record`, fill in `key`, `value`, and `updated_at` if you know better than the cache when the value
    changed.
    """

    key: str
    """The key; it has no prefix."""
    value: Json
    """Any JSON value."""
    updated_at: datetime | None = None
    """When the value changed (aware; UTC in what the cache returns): the time that was given with it, else that of the
    write."""
    id: str = ""
    """``rec_`` and 24 hexadecimal digits, always the same for one key of one session; filled by the cache."""
    session_id: str = ""
    """Filled by the cache."""


def upsert_of(record: Record) -> Operation:
    """The operation that upserts a record.  InvalidNameError for a key with a prefix, InvalidValueError."""
    if not isinstance(record, Record):
        kind = type(record).__name__
        raise InvalidValueError(f"a record must be a Record, not {kind}", path="record", type_name=kind)
    scope, name = split_key(record.key)
    if scope is not KeyScope.SESSION:
        raise InvalidNameError(f"the key of a record must be a session's own, not {record.key!r}")
    at, json = _micros(record.updated_at), encode_value(name, record.value)
    return Operation(Code.SET if at is None else Code.SET_UNLESS_OLDER, name, dated(json, at))


def record_of(session: ScopeRef, key: str, value: Json, entry: bytes) -> Record:
    """The record of one of a session's own keys; `entry`: nine digits of revision and the text of the value."""
    given = date_of(entry, DIGITS)
    return Record(
        key,
        value,
        revision_time(decode_revision(entry[:DIGITS]) if given is None else given),
        record_id(session, key),
        session.session,
    )


def record_id(session: ScopeRef, key: str) -> str:
    """The id of the record of one key of a session."""
    return "rec_" + hash_id("record", session.id, key_id("", key))[:_ID_DIGITS]


def _micros(at: datetime | None) -> int | None:
    """Microseconds since 1970.  InvalidValueError for a time that cannot be used."""
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise _refused(at, f"updated_at must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise _refused(at, "updated_at must be an aware datetime, this one has no time zone")
    micros = (at - _EPOCH) // timedelta(microseconds=1)
    if not 0 <= micros <= LARGEST:
        raise _refused(at, f"updated_at must lie between 1970 and {revision_time(LARGEST):%Y}")
    return micros


def _refused(at: object, message: str) -> InvalidValueError:
    return InvalidValueError(message, path="updated_at", type_name=type(at).__name__)
