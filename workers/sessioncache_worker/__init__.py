"""The flush worker of sessioncache: writes dirty session state behind, from Redis to SQL.

To flush a scope, a worker *claims* it (a lease in Redis), reads its dirty fields, commits them in one transaction under
the fence, and acknowledges them by version.  Any number of workers may run.
"""

from __future__ import annotations

import logging as _logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sessioncache_worker.worker import FlushWorker

__all__ = ["FlushWorker"]

# A program that sets up no logging gets no lines on its terminal.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())


def __getattr__(name: str) -> Any:
    # Loaded when it is first used: it imports the Redis client and SQLAlchemy.
    if name != "FlushWorker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sessioncache_worker.worker import FlushWorker

    return FlushWorker
