"""Every query of the durable tier at a million rows: ``python -m benchmarks.plans``; some two minutes.

PostgreSQL holds 100,000 sessions of ten rows each, 40,000 of them of one user, and a third of the rows are tombstones
past their retention.  Callers and a worker do all that reaches SQL: cold readings, lists, flushes, an erasure of that
user, a purge.  The server logs the plan of each statement.  One that scans a whole table is printed, and the exit code
is 1; so is what the calls took.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from benchmarks.servers import redis_server
from sessioncache import SessionCache
from sessioncache.durable.purging import BEGINNING, PurgeCursor
from sessioncache.primitives.scopes import app_id, bare_id, key_id, session_ref, user_id
from sessioncache.settings import TOMBSTONE_RETENTION, CacheSettings
from tests.helpers import Urls, connect, drain, evict, open_worker, upgrade
from tests.servers import PostgreSQLServer

BUCKETS = CacheSettings().buckets
SESSIONS, KEYS, PER_USER = 100_000, 10, 100
HEAVY = 40_000
"""Sessions of one user."""
APP = "app"
_PURGE = 1_000
_LARGE = ("state", "session", "namespace")
_PLANS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
}
_SCAN = re.compile(rf"Seq Scan on (sessioncache_(?:{'|'.join(_LARGE)}))\b.*\(actual rows=(\d+)")


def user_of(number: int) -> str:
    """Whose session it is."""
    return "heavy" if number < HEAVY else f"user{number // PER_USER}"


def heads(now: datetime) -> Iterator[tuple[Any, ...]]:
    """A row for each session, a millisecond apart."""
    begin = round(now.timestamp() * 1_000_000) - SESSIONS * 1_000
    for number in range(SESSIONS):
        ref = session_ref(BUCKETS, "", APP, user_of(number), f"s{number}")
        at = begin + number * 1_000
        owners = (user_id("", APP, ref.user), app_id("", APP), bare_id("", ref.session))
        life = (at, at, at - 1, False, at, at, 0, 0, "", ref.bucket, now, at)
        yield (ref.id, "", APP, ref.user, ref.session, *owners, "", *life)


def rows(now: datetime) -> Iterator[tuple[Any, ...]]:
    """Ten keys of each session, of which some are tombstones that are to be purged."""
    begin = round(now.timestamp() * 1_000_000) - SESSIONS * 1_000
    old = now - timedelta(seconds=2 * TOMBSTONE_RETENTION)
    ids = [key_id("", f"k{key}") for key in range(KEYS)]
    for number in range(SESSIONS):
        ref = session_ref(BUCKETS, "", APP, user_of(number), f"s{number}")
        for key in range(KEYS):
            dead = key % 3 == 2
            value = "" if dead else '"some text of usual length, forty bytes"'
            when = old + timedelta(milliseconds=number) if dead else now
            yield (ref.id, ids[key], "", f"k{key}", value, begin + number * 1_000, dead, when, None)


def fill(url: str) -> None:
    """Write all rows, and let the server know how many there are."""
    now = datetime.now(UTC)
    with psycopg.connect(url, autocommit=True) as connection:
        for table, make in (("session", heads), ("state", rows)):
            with connection.cursor().copy(f"COPY sessioncache_{table} FROM STDIN") as copy:
                for row in make(now):
                    copy.write_row(row)
            connection.execute(f"VACUUM ANALYZE sessioncache_{table}".encode())


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Print how long a block took."""
    began = time.perf_counter()
    yield
    print(f"{name:45} {(time.perf_counter() - began) * 1000:10.1f} ms", flush=True)


async def once(name: str, call: Awaitable[Any]) -> Any:
    """Wait for one call, and print how long it took."""
    with timed(name):
        return await call


async def use(urls: Urls, cache: SessionCache) -> None:
    """What callers do."""
    made = await once("cold get", cache.get("user500", "s50000"))
    await once("cold namespace", made.namespace("n").get("k"))
    whose: dict[str, str | None] = {"a user": "user500", "a user with 40,000": "heavy", "an app": None}
    for name, user in whose.items():
        for order in ("updated", "created"):
            page = await once(f"list of {name} by {order}", cache.list(user, order=order))
            await once("  its next page", cache.list(user, order=order, cursor=page.cursor))
    await once("list of a user in all apps", cache.list("heavy", all_apps=True, order="created"))
    await once("list of all apps", cache.list(all_apps=True))
    await once("find", cache.find("s70000"))
    await made.update({"k0": 1, "user:u": 1, "app:a": 1}, delete=["k1"])
    await made.namespace("n").set("k", 1)
    await cache.delete("user600", "s60000")
    await cache.create("user700", session_id="new", state={"a": 1})
    flushing = asyncio.ensure_future(cache.flush(60))
    await once("flush", drain(urls))
    await flushing
    evict(urls.redis)
    await once("cold get with a namespace", cache.get("user500", "s50000"))
    await once("export of a user", cache.export_user("user501"))


async def purge(urls: Urls) -> None:
    """A whole pass of the janitor's purge, and how the first of its transactions compare with the last."""
    async with open_worker(urls) as worker:
        taken: list[float] = []
        at: PurgeCursor | None = BEGINNING
        total = 0
        while at is not None:
            began = time.perf_counter()
            done = await worker._tiers.durable.purge(_PURGE, at)
            taken.append(time.perf_counter() - began)
            total, at = total + done.rows, done.following
        first, last = (sorted(part)[len(part) // 2] * 1000 for part in (taken[:20], taken[-25:-5]))
        print(f"purged {total:,} rows in {len(taken)} transactions: the first {first:.1f} ms, the last {last:.1f} ms")
        await once("a round of the janitor", worker._janitor.turn())


@asynccontextmanager
async def tiers() -> AsyncIterator[tuple[Urls, PostgreSQLServer]]:
    """Redis, and a full database that logs its plans."""
    server = PostgreSQLServer(shared_buffers="512MB").start()
    try:
        with redis_server("redis") as hot:
            await upgrade(server.url())
            with timed("fill"):
                await asyncio.to_thread(fill, server.url())
            server.restart(**_PLANS)
            yield Urls(hot.url, server.url()), server
    finally:
        server.destroy()


def scans(log: str) -> list[str]:
    """The plans that read much of a large table from its beginning to its end."""
    plans = log.split("duration: ")[1:]
    return [plan for plan in plans if any(int(read) > PER_USER for _, read in _SCAN.findall(plan))]


async def main() -> int:
    """Do all of it; the exit code."""
    async with tiers() as (urls, server):
        async with connect(urls, app=APP, timeout=60) as cache:
            await use(urls, cache)
            report = await once("erasure of a user with 40,000 sessions", cache.erase_user("heavy"))
            print(report)
        await purge(urls)
        log = server.log.read_text(errors="replace")
        found = scans(log)
        print(f"{log.count('duration: '):,} plans were logged, {len(found)} scan a large table")
        for plan in found[:10]:
            print(plan[:3000])
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
