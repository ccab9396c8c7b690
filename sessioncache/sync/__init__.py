"""The API without async, for scripts, notebooks, Flask and Celery: the same names, nothing to await.

::

    with SessionCache.connect(app="support") as cache:
        session = cache.create("ada", state={"step": 0, "user:language": "en"})
        session.update({"step": 1, "temp:pending": "lookup"})
        session.flush()

It is a portal to the asynchronous API: one background thread a process runs an event loop, and each call waits for it
there.  That takes 1.3 to 1.5 times as long as awaiting the same call (`benchmarks/sync_portal.py`), and keeps one
implementation of all that must hold.
"""

from __future__ import annotations

import typing as _typing

if _typing.TYPE_CHECKING:
    from sessioncache.sync.batch import Batch, BatchCalls, NamespaceCalls, Pending, SessionCalls
    from sessioncache.sync.cache import SessionCache
    from sessioncache.sync.handle import Namespace, Scope
    from sessioncache.sync.session import Session, current_session
    from sessioncache.sync.tool import SessionStateTool
    from sessioncache.sync.watch import Watch

__all__ = [
    "Batch",
    "BatchCalls",
    "Namespace",
    "NamespaceCalls",
    "Pending",
    "Scope",
    "Session",
    "SessionCache",
    "SessionCalls",
    "SessionStateTool",
    "Watch",
    "current_session",
]

# Loaded when they are first used: they bring the Redis client and SQLAlchemy along.
_LAZY = {
    "Batch": "sessioncache.sync.batch",
    "BatchCalls": "sessioncache.sync.batch",
    "NamespaceCalls": "sessioncache.sync.batch",
    "Pending": "sessioncache.sync.batch",
    "SessionCalls": "sessioncache.sync.batch",
    "Namespace": "sessioncache.sync.handle",
    "Scope": "sessioncache.sync.handle",
    "Session": "sessioncache.sync.session",
    "SessionCache": "sessioncache.sync.cache",
    "Watch": "sessioncache.sync.watch",
    "SessionStateTool": "sessioncache.sync.tool",
    "current_session": "sessioncache.sync.session",
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
