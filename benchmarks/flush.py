"""The flush, from claim to acknowledgement, beside the fastest bare upsert of the same rows and heads.

Run ``python benchmarks/flush.py [--json] [--profile]``; it starts servers of its own.  A batch is 500 sessions with
4 keys of 100 bytes each: 2,000 rows and 500 heads, all of which the database has already, at a smaller revision.  A
round is ten batches of different sessions.  The floors write each in one transaction, the worker flushes by its
default settings.  Then two worker processes are measured beside one.  Durable settings on both sides: fsync and
synchronous commit on PostgreSQL, synchronous FULL on SQLite.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from redis.asyncio import Redis
from sessioncache_worker import FlushWorker
from sessioncache_worker.cli import spare_collector

from benchmarks.flush_workers import Workers, rate, workers
from benchmarks.measuring import Spread, alternate, console, options, print_json, profiled, ratios, table
from benchmarks.upserts import Copy, Executemany, Floor, Unnest, as_sqlite, make_batch
from sessioncache import SessionCache, upgrade_schema
from sessioncache.durable.engine import create_engine
from sessioncache.durable.tier import DurableTier
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Layout
from sessioncache.session import Session
from sessioncache.settings import WorkerSettings
from tests.servers import PostgreSQLServer, RedisServer

BATCHES = 10
SCOPES = 500
"""Of a batch."""
KEYS = 4
TEXT = "x" * 98
"""100 bytes as JSON."""
ROWS = SCOPES * (KEYS + 1)
"""Of a batch; heads count."""
ROUNDS = 9
BACKLOG = 5_000
"""Sessions that are dirty when two workers are measured beside one."""
WORKER_ROUNDS = 7
AT_ONCE = 64
"""Sessions that are written at once, to make them dirty."""

Floors = Mapping[str, Floor]


class Flushing:
    """A worker, and sessions to make dirty for it."""

    def __init__(self, worker: FlushWorker, sessions: Sequence[Session]) -> None:
        self.worker = worker
        self._sessions = sessions

    @classmethod
    @asynccontextmanager
    async def open(
        cls, redis_url: str, database_url: str, *, scopes: int = BATCHES * SCOPES, part: str = "one"
    ) -> AsyncIterator[Flushing]:
        """Create the sessions; the database has them already when the measuring begins.  `part` sets runs apart."""
        settings = WorkerSettings(prefix=f"{database_url.split(':')[0]}-{part}")
        worker = FlushWorker.over(HotClient.from_url(redis_url), DurableTier.connect(database_url), settings)
        async with SessionCache.connect(redis_url, database_url, app="bench", prefix=settings.prefix) as cache:
            sessions = [await cache.create(f"user{number}") for number in range(scopes)]
            # As a worker's process does; the sessions are of other processes than workers', and not for it to look at.
            spare_collector()
            yield cls(worker, sessions)
            gc.unfreeze()
            await worker.aclose()

    async def rate(self) -> float:
        """Make the sessions dirty, then flush them; rows a second of the flush, heads counted."""
        await self.make_dirty()
        began = time.perf_counter()
        rows = await self.worker.flush_once()
        taken = time.perf_counter() - began
        if rows != BATCHES * SCOPES * KEYS:
            raise RuntimeError(f"{rows} rows were flushed, not {BATCHES * SCOPES * KEYS}")
        return BATCHES * ROWS / taken

    async def make_dirty(self) -> None:
        """Write the four keys of every session."""
        changes = {f"key{number}": TEXT for number in range(KEYS)}
        for start in range(0, len(self._sessions), AT_ONCE):
            await asyncio.gather(*(session.update(changes) for session in self._sessions[start : start + AT_ONCE]))


class Upserting:
    """A floor, and batches for it with ever larger revisions: a refused row would cost less."""

    def __init__(self, floor: Floor, revisions: Iterator[int], *, sqlite: bool) -> None:
        self._floor = floor
        self._sqlite = sqlite
        self._revisions = revisions

    async def rate(self) -> float:
        """Rows a second of batches one after another, each to its commit; they are made before."""
        revision, texts = next(self._revisions), f'"{TEXT}"'
        batches = [make_batch(range(n * SCOPES, (n + 1) * SCOPES), KEYS, texts, revision) for n in range(BATCHES)]
        if self._sqlite:
            batches = [as_sqlite(batch) for batch in batches]
        began = time.perf_counter()
        for batch in batches:
            await self._floor.upsert(batch)
        return BATCHES * ROWS / (time.perf_counter() - began)


@asynccontextmanager
async def postgresql() -> AsyncIterator[tuple[str, Floors]]:
    """A database for the worker; and floors over another one of the same server."""
    server = PostgreSQLServer(fsync="on", shared_buffers="256MB").start()
    try:
        ours, bare = (server.url(server.create_database()) for _ in range(2))
        await _upgrade(ours, bare)
        floors: dict[str, Floor] = {"asyncpg unnest": await Unnest.open(bare), "psycopg COPY": await Copy.open(bare)}
        yield ours, floors
        for floor in floors.values():
            await floor.aclose()
    finally:
        server.destroy()


@asynccontextmanager
async def sqlite() -> AsyncIterator[tuple[str, Floors]]:
    """A file for the worker, and another one for the floor."""
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = Path(folder) / "ours.db", Path(folder) / "bare.db"
        await _upgrade(f"sqlite:///{ours}", f"sqlite:///{bare}")
        floor = Executemany(bare)
        yield f"sqlite:///{ours}", {"sqlite3 executemany": floor}
        await floor.aclose()


async def _upgrade(*urls: str) -> None:
    for url in urls:
        engine = create_engine(url)
        await upgrade_schema(engine)
        await engine.dispose()


async def measure(flushing: Flushing, floors: Floors, rounds: int, *, sqlite: bool) -> dict[str, list[float]]:
    """Rows a second of the flush and of every floor, in alternating rounds after two that do not count."""
    calls: dict[str, Callable[[], Awaitable[float]]] = {"sessioncache": flushing.rate}
    revisions = count(1_700_000_000_000_000)
    calls |= {name: Upserting(floor, revisions, sqlite=sqlite).rate for name, floor in floors.items()}
    await alternate(calls, 2)
    return await alternate(calls, rounds)


def fastest(found: Mapping[str, list[float]]) -> str:
    """The floor with the highest median."""
    return max((name for name in found if name != "sessioncache"), key=lambda name: Spread.of(found[name]).middle)


async def profile(name: str, redis_url: str, flushing: Flushing) -> None:
    """Print where the time of a flush goes: in this process by function, and in Redis by command."""
    out = console()
    await flushing.make_dirty()
    await profiled(f"{name}: flush of {BATCHES * ROWS} rows", flushing.worker.flush_once, out)
    await flushing.make_dirty()
    async with Redis.from_url(redis_url) as client:
        await client.config_resetstat()
        began = time.perf_counter()
        await flushing.worker.flush_once()
        taken = time.perf_counter() - began
        scripts = (await client.info("commandstats"))["cmdstat_evalsha"]
    redis = f"{scripts['usec'] / 1_000:.1f} ms in {scripts['calls']} scripts"
    out.print(f"of {taken * 1_000:.1f} ms in all, Redis spent {redis} (while SQL and this process worked on)")


async def run_one(name: str, redis_url: str, rounds: int, *, with_profile: bool) -> dict[str, list[float]]:
    """Measure one database."""
    async with AsyncExitStack() as stack:
        database_url, floors = await stack.enter_async_context(sqlite() if name == "sqlite" else postgresql())
        flushing = await stack.enter_async_context(Flushing.open(redis_url, database_url))
        await flushing.rate()
        if with_profile:
            await profile(name, redis_url, flushing)
        return await measure(flushing, floors, rounds, sqlite=name == "sqlite")


async def two_workers(redis_url: str, rounds: int) -> dict[str, list[float]]:
    """Rows a second of one worker process, and of two, on PostgreSQL."""
    async with AsyncExitStack() as stack:
        database_url, _ = await stack.enter_async_context(postgresql())
        flushing = await stack.enter_async_context(
            Flushing.open(redis_url, database_url, scopes=BACKLOG, part="workers")
        )
        settings = flushing.worker.settings
        backlog = Backlog(HotClient.from_url(redis_url), Layout(settings.prefix, settings.buckets), idle_ttl=1)
        both = await stack.enter_async_context(workers(2, redis_url, database_url, settings.prefix))

        async def dirty() -> int:
            return sum((await backlog.count_dirty(range(settings.buckets))).values())

        async def measured(chosen: Workers) -> float:
            await flushing.make_dirty()
            return await rate(chosen, BACKLOG * (KEYS + 1), dirty)

        calls = {"one worker": partial(measured, both[:1]), "two workers": partial(measured, both)}
        await alternate(calls, 1)
        found = await alternate(calls, rounds)
        await backlog.link.aclose()
        return found


async def run(rounds: int, *, as_json: bool, with_profile: bool) -> None:
    """Measure both databases, and print."""
    server = RedisServer(tcp=True).start()
    try:
        one = partial(run_one, redis_url=server.url, rounds=rounds, with_profile=with_profile)
        found = {name: await one(name) for name in ("postgresql", "sqlite")}
        two = await two_workers(server.url, min(rounds, WORKER_ROUNDS))
    finally:
        server.destroy()
    rows, results = [], dict[str, float]()
    for name, by_name in found.items():
        quotient = {floor: ratios(by_name["sessioncache"], values) for floor, values in by_name.items()}
        for contender, values in by_name.items():
            shown = "" if contender == "sessioncache" else quotient[contender].shown()
            rows.append((f"{name}: {contender}", Spread.of(values).shown(0), shown))
        results[f"flush_ratio_{name}"] = quotient[fastest(by_name)].middle
        results[f"flush_rows_per_s_{name}"] = Spread.of(by_name["sessioncache"]).middle
    rows += [(f"postgresql, {BACKLOG} sessions: {name}", Spread.of(v).shown(0), "") for name, v in two.items()]
    results["flush_two_workers_ratio"] = ratios(two["two workers"], two["one worker"]).middle
    columns = ("", "rows/s (median of the rounds, quartiles)", "sessioncache ÷ this")
    console().print(table(f"{SCOPES} sessions of {KEYS} keys of 100 bytes, heads counted", columns, rows))
    if as_json:
        print_json(results)


def main() -> None:
    """Run as a command."""
    chosen = options("The flush beside the fastest bare upsert of the same rows and heads.").parse_args()
    asyncio.run(run(chosen.rounds or ROUNDS, as_json=chosen.json, with_profile=chosen.profile))


if __name__ == "__main__":
    main()
