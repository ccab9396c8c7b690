"""Lists of 100,000 sessions in PostgreSQL, 1,000 of them unflushed, beside the same lists of 1,000 sessions.

Run ``python benchmarks/listing.py [--json] [--rounds N]``; it starts servers of its own.  Users have 100 sessions each.
Then one pass through all sessions by creation, page by page, while sessions are touched, created and deleted between
the pages: each that lives all the while has to come exactly once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.measuring import Spread, alternate, console, median_latency, options, print_json, ratios, table
from sessioncache import SessionCache, upgrade_schema
from sessioncache.durable.bulk import HEADS
from sessioncache.durable.engine import create_engine
from sessioncache.durable.heads import head_row
from sessioncache.primitives.cursors import ORDERS, Order
from sessioncache.primitives.entries import Dirt, Head
from sessioncache.primitives.scopes import ScopeKind, session_ref
from tests.servers import PostgreSQLServer, RedisServer

PER_USER = 100
PAGE = 50
ROUNDS = 7
CALLS = 15
"""Calls of one round, of which the median counts."""
CHANGES = 50
"""Sessions touched, created and deleted during the pass, each."""
PASS_PAGE = 1_000


@dataclass(eq=False)
class Stock:
    """A database with sessions."""

    name: str
    sessions: int
    dirty: int
    cache: SessionCache = field(init=False)


STOCKS = (
    Stock("100,000, 1,000 unflushed", 100_000, 1_000),
    Stock("1,000, all unflushed", 1_000, 1_000),
    Stock("1,000, 10 unflushed", 1_000, 10),
    Stock("100,000, none unflushed", 100_000, 0),
)
LARGE, SAME_DIRT, SAME_SHARE, CLEAN = (stock.name for stock in STOCKS)


def user_of(number: int, per_user: int = PER_USER) -> str:
    """The user of a session."""
    return f"user{number // per_user}"


async def fill(database_url: str, sessions: int, per_user: int = PER_USER) -> None:
    """So many sessions, a millisecond apart, by the statement that flushes use."""
    engine = create_engine(database_url)
    await upgrade_schema(engine)
    begin = int(time.time() * 1_000_000) - sessions * 1_000
    for first in range(0, sessions, 5_000):
        rows = [
            _row(number, user_of(number, per_user), begin + number * 1_000)
            for number in range(first, min(first + 5_000, sessions))
        ]
        async with engine.begin() as connection:
            await HEADS[ScopeKind.SESSION].upsert(connection, sorted(rows))
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        await connection.exec_driver_sql("VACUUM ANALYZE sessioncache_session")
    await engine.dispose()


def _row(number: int, user: str, born: int) -> tuple[object, ...]:
    ref = session_ref(256, "", "bench", user, f"s{number:06}")
    head = Head(ref.org, ref.app, ref.user, ref.session, born, born, born - 1, values_revision=born, updated=born)
    return head_row(Dirt(ref.kind, ref.id, ref.bucket, "", head, b"", []))


@asynccontextmanager
async def opened(stock: Stock, redis_url: str, server: PostgreSQLServer) -> AsyncIterator[Stock]:
    """Fill a database, and make some of its sessions dirty, evenly over the users."""
    url = server.url(server.create_database())
    await fill(url, stock.sessions)
    prefix = f"p{STOCKS.index(stock)}"
    async with SessionCache.connect(redis_url, url, app="bench", prefix=prefix) as stock.cache:
        for number in range(0, stock.sessions, max(1, stock.sessions // stock.dirty)) if stock.dirty else ():
            await (await stock.cache.get(user_of(number), f"s{number:06}")).set("k", number)
        yield stock


def latency(stock: Stock, user: str | None, order: Order) -> Callable[[], Awaitable[float]]:
    """How long a first page takes, in microseconds."""

    async def call(_: int) -> None:
        page = await stock.cache.list(user, limit=PAGE, order=order)
        if len(page.items) != PAGE or page.cursor is None:
            raise RuntimeError("the page is not full")

    return lambda: median_latency(call, 0, CALLS)


@dataclass
class Pass:
    """What came of a pass through all sessions."""

    seconds: float
    missed: int
    repeated: int
    dead: int
    """Sessions that were deleted before their page was read, and came nevertheless."""


async def pass_through(stock: Stock) -> Pass:
    """List all sessions by creation, page by page, with changes between the pages."""
    began, listed = time.perf_counter(), list[str]()
    gone: set[str] = set()
    dead, changes, cursor = 0, 0, None
    while True:
        page = await stock.cache.list(limit=PASS_PAGE, cursor=cursor, order="created")
        ids = [info.id for info in page.items]
        dead += len(gone & set(ids))
        listed += ids
        cursor = page.cursor
        if cursor is None:
            break
        if changes < CHANGES:
            gone.add(await _change(stock, changes))
            changes += 1
    living = {f"s{number:06}" for number in range(stock.sessions)} - gone
    repeated = len(listed) - len(set(listed))
    return Pass(time.perf_counter() - began, len(living - set(listed)), repeated, dead)


async def _change(stock: Stock, step: int) -> str:
    """Write a session, create one, delete one; the one deleted."""
    step_width = stock.sessions // CHANGES
    touched, deleted = step * step_width + 5, step * step_width + 7
    await stock.cache.touch(user_of(touched), f"s{touched:06}", messages=1)
    await stock.cache.create(user_of(touched))
    await stock.cache.delete(user_of(deleted), f"s{deleted:06}")
    return f"s{deleted:06}"


Measured = dict[tuple[str, str], dict[str, list[float]]]


async def measure(stocks: Sequence[Stock], rounds: int) -> Measured:
    """Microseconds of a first page, by owner and order, then by stock."""
    found: Measured = {}
    for owner, user in (("user", user_of(0)), ("app", None)):
        for order in ORDERS:
            calls = {stock.name: latency(stock, user, order) for stock in stocks}
            await alternate(calls, 1)
            found[owner, order] = await alternate(calls, rounds)
    return found


def show(found: Measured, done: Pass) -> dict[str, object]:
    """Print tables; what the JSON holds."""
    rows, results = [], dict[str, object]()
    for (owner, order), by_stock in found.items():
        large = by_stock[LARGE]
        for name, values in by_stock.items():
            quotient = "" if name == LARGE else ratios(large, values).shown()
            rows.append((f"{owner}, {order}: {name}", Spread.of([v / 1_000 for v in values]).shown(), quotient))
        results[f"page_ms_{owner}_{order}"] = Spread.of(large).middle / 1_000
        results[f"page_ratio_same_dirt_{owner}_{order}"] = ratios(large, by_stock[SAME_DIRT]).middle
        results[f"page_ratio_same_share_{owner}_{order}"] = ratios(large, by_stock[SAME_SHARE]).middle
        results[f"page_ratio_clean_{owner}_{order}"] = ratios(large, by_stock[CLEAN]).middle
    results |= {"pass_seconds": done.seconds, "pass_missed": done.missed, "pass_repeated": done.repeated}
    results["pass_dead"] = done.dead
    columns = (f"first page of {PAGE}", "ms (median of the rounds, quartiles)", "large ÷ this")
    console().print(table("Lists", columns, rows))
    told = f"{done.missed} missed, {done.repeated} repeated, {done.dead} came after their deletion"
    console().print(f"a pass through 100,000 by creation in {done.seconds:.1f} s: {told}")
    return results


async def run(rounds: int, *, as_json: bool) -> None:
    """Measure, and print."""
    redis, server = RedisServer(tcp=True).start(), PostgreSQLServer(shared_buffers="256MB").start()
    try:
        async with AsyncExitStack() as stack:
            stocks = [await stack.enter_async_context(opened(stock, redis.url, server)) for stock in STOCKS]
            results = show(await measure(stocks, rounds), await pass_through(stocks[0]))
    finally:
        redis.destroy()
        server.destroy()
    if as_json:
        print_json(results)


def main() -> None:
    """Run as a command."""
    chosen = options("Lists of many sessions beside lists of few.").parse_args()
    asyncio.run(run(chosen.rounds or ROUNDS, as_json=chosen.json))


if __name__ == "__main__":
    main()
