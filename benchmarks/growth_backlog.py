"""A backlog of a million dirty entries beside one of ten thousand: what an entry costs on its way out of Redis.

Claim, reading and acknowledgement as the worker does them, one after another; no database takes part, since its share
is no question of the backlog: what was read counts as committed.  Besides the time, the CPU time of Redis and of this
process is told, which other jobs of the machine move less.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from benchmarks.measuring import Spread, alternate, ratios
from benchmarks.results import figure
from sessioncache import SessionCache
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.client import HotClient
from sessioncache.hot.layout import Layout
from sessioncache.hot.messages import Acknowledged, Claims
from sessioncache.primitives.entries import Committed, Dirt
from tests.helpers import BUCKETS, Urls, connect, upgrade
from tests.servers import RedisServer

KEYS = 10
"""Entries of a session."""
FEW, MANY = 10_000, 1_000_000
"""Entries of both backlogs."""
LEASE, DELAY, IDLE = 15.0, 1.0, 86_400.0
"""As by default, in seconds."""
_AT_ONCE = 64
_OF_A_BUCKET = 8
"""Scopes of each bucket that are claimed at once, as the worker does."""
STEPS = ("claim", "read", "acknowledge")


class Stock:
    """A server with a backlog, which every round takes some scopes from and puts as many back."""

    def __init__(self, urls: Urls, link: HotClient, entries: int) -> None:
        self.scopes = entries // KEYS
        self._urls = urls
        self._link = link
        self._backlog = Backlog(link, Layout("sessioncache", BUCKETS), idle_ttl=IDLE)
        self._made = 0
        self.steps: dict[str, list[float]] = {step: [] for step in STEPS}
        """Microseconds an entry of each step, one number a round."""
        self.cpu: list[float] = []
        """Microseconds of CPU an entry, of Redis and of this process, one number a round."""

    @classmethod
    @asynccontextmanager
    async def open(cls, entries: int) -> AsyncIterator[Stock]:
        """Start a server and fill it, through the public API."""
        server = RedisServer().start()
        try:
            urls = Urls(server.url, f"sqlite:///{server.folder}/state.db")
            await upgrade(urls.database)
            link = HotClient.from_url(urls.redis)
            stock = cls(urls, link, entries)
            await stock.make(stock.scopes)
            yield stock
            await link.aclose()
        finally:
            server.destroy()

    def forget(self) -> None:
        """What was measured so far does not count."""
        self.steps, self.cpu = {step: [] for step in STEPS}, []

    async def make(self, sessions: int) -> None:
        """New sessions, dirty with all their keys; the cache that made them is gone when the measuring goes on."""
        first, last = self._made, self._made + sessions
        self._made = last
        async with connect(self._urls) as cache:
            await asyncio.gather(*(_create(cache, range(first + at, last, _AT_ONCE)) for at in range(_AT_ONCE)))

    async def drain(self, most: int) -> float:
        """Microseconds an entry, from claim to acknowledgement, of about so many entries."""
        taken, entries = dict.fromkeys(STEPS, 0.0), 0
        await asyncio.sleep(DELAY)  # until all is due
        before = await self._cpu()
        while entries < most:
            found = await self._once(taken)
            if not found:
                break
            entries += found
        self.cpu.append((await self._cpu() - before) * 1e6 / entries)
        for step, seconds in taken.items():
            self.steps[step].append(seconds * 1e6 / entries)
        await self.make(entries // KEYS)
        return sum(taken.values()) * 1e6 / entries

    async def _cpu(self) -> float:
        """Seconds so far."""
        redis = await self._link.info("cpu")
        return float(redis["used_cpu_user"]) + float(redis["used_cpu_sys"]) + time.process_time()

    async def _once(self, taken: dict[str, float]) -> int:
        began = time.perf_counter()
        found = await self._backlog.claim(range(BUCKETS), "bench", lease=LEASE, delay=DELAY, most=_OF_A_BUCKET)
        taken["claim"] += time.perf_counter() - began
        scopes = _members(found)
        began = time.perf_counter()
        readings = [one for one in await self._backlog.read_dirt(scopes) if isinstance(one, Dirt)]
        taken["read"] += time.perf_counter() - began
        committed = [Committed(one, one.head.revision, [entry.revision for entry in one.entries]) for one in readings]
        began = time.perf_counter()
        done = await self._backlog.acknowledge(committed, delay=DELAY)
        taken["acknowledge"] += time.perf_counter() - began
        return sum(one.rows for one in done if isinstance(one, Acknowledged))


async def _create(cache: SessionCache, numbers: range) -> None:
    for number in numbers:
        await cache.create(f"user{number}", state={f"key{n}": "x" * 20 for n in range(KEYS)})


def _members(found: dict[int, Claims | None]) -> Sequence[tuple[int, str]]:
    return [(bucket, member) for bucket, claims in found.items() if claims for member in claims.members]


async def measure(rounds: int, *, few: int = FEW, many: int = MANY) -> dict[str, object]:
    """The keys of the results."""
    async with AsyncExitStack() as stack:
        stocks = {name: await stack.enter_async_context(Stock.open(n)) for name, n in (("few", few), ("many", many))}
        calls = {name: partial(stock.drain, few) for name, stock in stocks.items()}
        await alternate(calls, 1)
        for stock in stocks.values():
            stock.forget()
        found = await alternate(calls, rounds)
    results: dict[str, object] = figure("backlog_ratio", ratios(found["many"], found["few"]))
    results |= figure("backlog_cpu_ratio", ratios(stocks["many"].cpu, stocks["few"].cpu))
    results["backlog_entries"] = many
    for name, stock in stocks.items():
        results[f"backlog_{name}_us"] = Spread.of(found[name]).middle
        results[f"backlog_{name}_cpu_us"] = Spread.of(stock.cpu).middle
        results |= {f"backlog_{name}_{step}_us": Spread.of(us).middle for step, us in stock.steps.items()}
    return results
