"""Locks of PostgreSQL that nobody else may hold: asked for a fifth of a second at a time, ever more rarely.

All that comes later for a table waits behind who waits for such a lock, be it only to read.
"""

from __future__ import annotations

import logging
from itertools import count

from alembic import op
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

# A program that set up no logging gets no lines of it: the library sees to that for its loggers.
logger = logging.getLogger("sessioncache.migrations")

_BRIEFLY = """
DO $$ BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    {statement};
END $$
"""
_LOCKED = "55P03"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
"""Seconds between two tries, each pause twice the one before: meanwhile others get their turn."""
_TRIES = 4
"""Tries after which those in the way are named."""
_HOLDERS = text("""
SELECT DISTINCT a.pid, a.application_name, extract(epoch FROM clock_timestamp() - a.query_start)::bigint AS seconds
FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.granted AND l.relation = to_regclass(:name) AND l.pid <> pg_backend_pid() ORDER BY a.pid
""")
"""Whoever holds any lock of a relation is in the way.  The age of a query is known of one's own role only."""


def execute_soon(statement: str, *, locks: str) -> None:
    """Execute, as a transaction of its own, as soon as nobody uses for a moment the table or view that it `locks`.

    Outside of any transaction; an upgrade that was broken off executes it again.
    """
    pause = _FIRST_PAUSE
    for tries in count(1):
        if _try(statement):
            return
        if tries == _TRIES:
            logger.error("the upgrade waits until nobody uses %s: %s", locks, _holders(locks) or "many in turn do")
        _sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _try(statement: str) -> bool:
    try:
        op.execute(_BRIEFLY.format(statement=statement))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCKED:
            raise
        return False
    return True


def _holders(name: str) -> str:
    """Those that hold a lock of a table or view, without what they ask."""
    found = op.get_bind().execute(_HOLDERS, {"name": name}).all()
    return ", ".join(
        f"process {pid} ({program or 'without a name'}"
        + ("" if seconds is None else f", its query began {seconds} s ago")
        + ")"
        for pid, program, seconds in found
    )


def _sleep(seconds: float) -> None:
    # In the server, since the event loop of whoever upgrades runs on; in parts, below anybody's time-out of statements.
    while seconds > 0:
        op.execute(f"SELECT pg_sleep({min(seconds, 0.2)})")
        seconds -= 0.2
