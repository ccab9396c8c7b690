"""Rows of PostgreSQL that a test holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.helpers import Urls, fetch, session


@contextmanager
def locked_row(urls: Urls) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Hold the row of the session's key ``a``; rolled back at the end of the block."""
    with psycopg.connect(urls.database) as holder:
        holder.execute(
            "SELECT 1 FROM sessioncache_state WHERE scope_id = %s AND key = 'a' FOR UPDATE", [session("ada", "s1").id]
        )
        yield holder
        holder.rollback()


def waiters(urls: Urls) -> int:
    """How many connections wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int(fetch(urls.database, query)[0][0])
