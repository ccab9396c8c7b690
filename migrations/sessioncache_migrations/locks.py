"""Locks of PostgreSQL that nobody else may hold: asked for a second at a time.

All that comes later for a table waits behind who waits for such a lock, be it only to read.
"""

from __future__ import annotations

from alembic import op
from sqlalchemy.exc import OperationalError

_BRIEFLY = """
DO $$ BEGIN
    PERFORM set_config('lock_timeout', '1s', true);
    {statement};
END $$
"""
_LOCKED = "55P03"


def execute_soon(statement: str) -> None:
    """Execute, as a transaction of its own, as soon as nobody uses for a moment what it has to lock.

    Outside of any transaction; an upgrade that was broken off executes it again.
    """
    while not _try(statement):
        op.execute("SELECT pg_sleep(0.2)")  # others get their turn


def _try(statement: str) -> bool:
    try:
        op.execute(_BRIEFLY.format(statement=statement))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCKED:
            raise
        return False
    return True
