"""Session state for fleets of AI agents: shared at Redis speed, written behind to SQL, nothing acknowledged lost.

::

    async with SessionCache.connect(app="support") as cache:
        session = await cache.create("ada", state={"step": 0, "user:language": "en"})
        await session.update({"step": 1, "temp:pending": "lookup"})
        await session.flush()
"""

from __future__ import annotations

import logging as _logging
import typing as _typing

from sessioncache.errors import (
    AmbiguousSessionError,
    BackPressureError,
    ConfigurationError,
    DamagedValueError,
    DeadLetterError,
    DurableTierUnavailableError,
    FlushTimeoutError,
    HotTierUnavailableError,
    InvalidNameError,
    InvalidValueError,
    LeaseUnavailableError,
    LimitExceededError,
    MemoryFullError,
    NoSessionError,
    OutcomeUnknownError,
    PartlyAppliedError,
    SchemaVersionError,
    SessionCacheError,
    SessionExistsError,
    SessionNotFoundError,
    StaleLeaseError,
    StaleSessionError,
    TypeMismatchError,
    WriteLostError,
)
from sessioncache.primitives.names import APP_PREFIX, TEMP_PREFIX, USER_PREFIX, new_session_id

if _typing.TYPE_CHECKING:
    from sessioncache.batch.batch import Batch
    from sessioncache.batch.calls import BatchCalls, NamespaceCalls, SessionCalls
    from sessioncache.batch.result import Pending
    from sessioncache.cache import SessionCache
    from sessioncache.current import current_session
    from sessioncache.durable.migrate import upgrade_schema
    from sessioncache.namespace import Namespace
    from sessioncache.operations.erase_user import ErasureReport
    from sessioncache.primitives.session_info import Identity, SessionInfo, SessionPage
    from sessioncache.primitives.titles import derive_title
    from sessioncache.records import Record
    from sessioncache.scope import Scope
    from sessioncache.session import Session
    from sessioncache.tool.state_tool import SessionStateTool
    from sessioncache.watch import Change, Watch

__all__ = [
    "APP_PREFIX",
    "TEMP_PREFIX",
    "USER_PREFIX",
    "AmbiguousSessionError",
    "BackPressureError",
    "Batch",
    "BatchCalls",
    "Change",
    "ConfigurationError",
    "DamagedValueError",
    "DeadLetterError",
    "DurableTierUnavailableError",
    "ErasureReport",
    "FlushTimeoutError",
    "HotTierUnavailableError",
    "Identity",
    "InvalidNameError",
    "InvalidValueError",
    "LeaseUnavailableError",
    "LimitExceededError",
    "MemoryFullError",
    "Namespace",
    "NamespaceCalls",
    "NoSessionError",
    "OutcomeUnknownError",
    "PartlyAppliedError",
    "Pending",
    "Record",
    "SchemaVersionError",
    "Scope",
    "Session",
    "SessionCache",
    "SessionCacheError",
    "SessionCalls",
    "SessionExistsError",
    "SessionInfo",
    "SessionNotFoundError",
    "SessionPage",
    "SessionStateTool",
    "StaleLeaseError",
    "StaleSessionError",
    "TypeMismatchError",
    "Watch",
    "WriteLostError",
    "current_session",
    "derive_title",
    "new_session_id",
    "upgrade_schema",
]

# A program that sets up no logging gets no lines on its terminal.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

# Loaded when they are first used: they bring the Redis client and SQLAlchemy along.
_LAZY = {
    "Batch": "sessioncache.batch.batch",
    "BatchCalls": "sessioncache.batch.calls",
    "NamespaceCalls": "sessioncache.batch.calls",
    "Pending": "sessioncache.batch.result",
    "SessionCalls": "sessioncache.batch.calls",
    "Change": "sessioncache.watch",
    "ErasureReport": "sessioncache.operations.erase_user",
    "Namespace": "sessioncache.namespace",
    "Identity": "sessioncache.primitives.session_info",
    "Record": "sessioncache.records",
    "Scope": "sessioncache.scope",
    "Session": "sessioncache.session",
    "SessionCache": "sessioncache.cache",
    "SessionInfo": "sessioncache.primitives.session_info",
    "SessionPage": "sessioncache.primitives.session_info",
    "Watch": "sessioncache.watch",
    "SessionStateTool": "sessioncache.tool.state_tool",
    "current_session": "sessioncache.current",
    "derive_title": "sessioncache.primitives.titles",
    "upgrade_schema": "sessioncache.durable.migrate",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
