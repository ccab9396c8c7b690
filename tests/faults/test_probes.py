"""Workers that ask at the same time whether the database takes writes do not get in each other's way (R10)."""

from __future__ import annotations

import asyncio

import psycopg

from sessioncache.durable.tier import DurableTier
from tests.helpers import fetch, upgrade
from tests.waiting import wait_until_async

_NAME = "last_probe"


async def test_a_probe_that_waits_for_another_ones_row_succeeds(postgresql_url: str) -> None:
    await upgrade(postgresql_url)
    tier = DurableTier.connect(postgresql_url)
    assert await tier.can_write()
    with psycopg.connect(postgresql_url) as other:
        other.execute("DELETE FROM sessioncache_layout WHERE name = %s", [_NAME])
        other.execute("INSERT INTO sessioncache_layout (name, value) VALUES (%s, '')", [_NAME])
        probe = asyncio.ensure_future(tier.can_write())
        await wait_until_async(lambda: waiters(postgresql_url) > 0, 10, "the probe waits for the row")
        other.commit()
        assert await probe
    await tier.aclose()


def waiters(url: str) -> int:
    """How many connections wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return int(fetch(url, query)[0][0])
