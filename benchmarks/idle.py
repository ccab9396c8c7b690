"""What a worker asks of Redis while nobody writes: commands a second as Redis counts them, those in scripts included.

``python benchmarks/idle.py [--json] [--seconds S]``; it starts servers of its own, over SQLite files.  The worker runs
on its defaults over a few hundred clean sessions and some run leases whose holders are gone.  A minute holds each of
its periodic tasks at least once: heartbeats, sweeps, a turn of the janitor.  Beside it an idle cache that has worked,
and watches.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import console, options, print_json, table
from sessioncache.primitives.names import KeyScope
from tests.helpers import Urls, connect, drain, open_worker, raw, upgrade
from tests.servers import RedisKind, RedisServer

SECONDS = 60.0
ENGINES: tuple[RedisKind, ...] = ("redis", "valkey")
SESSIONS = 300
LEASES = 50
_SETTLED = 2.0
"""Seconds after which whatever a start brings about is over."""


class Counted(NamedTuple):
    """How often Redis has executed something since it was started."""

    all: int
    by_command: Mapping[str, int]


def count(redis_url: str) -> Counted:
    """What Redis has counted, this question left out."""
    with raw(redis_url) as client:
        told = client.info("stats", "commandstats")
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in told.items() if name.startswith("cmdstat_")}
    return Counted(told["total_commands_processed"], calls)


async def rates(redis_url: str, seconds: float) -> dict[str, float]:
    """Commands a second by name, ``all`` among them; what the counting itself takes is left out."""
    loop = asyncio.get_running_loop()
    before, began = count(redis_url), loop.time()
    await asyncio.sleep(seconds)
    after, took = count(redis_url), loop.time() - began
    own = count(redis_url)
    found = {name: after.by_command[name] - before.by_command.get(name, 0) for name in after.by_command}
    asked = {name: own.by_command[name] - after.by_command.get(name, 0) for name in own.by_command}
    by_name = {name: (found[name] - asked[name]) / took for name in found if found[name] > asked[name]}
    return {"all": (after.all - before.all - (own.all - after.all)) / took, **by_name}


async def fill(urls: Urls) -> None:
    """Clean sessions, and leases that are never given back."""
    async with connect(urls) as cache:
        for number in range(SESSIONS):
            made = await cache.create(f"u{number}", session_id="s", state={"a": 1, "user:b": 2, "app:c": 3})
            if number < LEASES:
                await cache._tiers.leases.take(made._by_scope[KeyScope.SESSION], made._birth, b"token", 30.0)
    await drain(urls)


@asynccontextmanager
async def worker(urls: Urls) -> AsyncIterator[None]:
    """A worker that runs, on its defaults."""
    async with open_worker(urls) as one:
        running = asyncio.ensure_future(one.run())
        try:
            yield
        finally:
            one.stop()
            await running


@asynccontextmanager
async def agent(urls: Urls) -> AsyncIterator[None]:
    """A cache that has read and written, and watches a session."""
    async with connect(urls) as cache:
        session = await cache.get("u0", "s")
        await session.set("a", 2)
        await drain(urls)
        watching = asyncio.ensure_future(anext(aiter(session.watch())))
        try:
            yield
        finally:
            watching.cancel()


Idler = Callable[[Urls], AbstractAsyncContextManager[None]]
IDLERS: Mapping[str, Idler] = {"worker": worker, "agent": agent}


async def watch(kind: RedisKind, idler: Idler, seconds: float, one_by_one: asyncio.Lock) -> dict[str, float]:
    """Commands a second of one who is idle, on servers of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(kind).start()
        try:
            urls = Urls(server.url, f"sqlite:///{folder}/state.db")
            async with one_by_one:
                await upgrade(urls.database)
                await fill(urls)
            async with idler(urls):
                await asyncio.sleep(_SETTLED)
                return await rates(urls.redis, seconds)
        finally:
            server.destroy()


async def run(seconds: float, *, as_json: bool) -> None:
    """Watch all of them at once, and print."""
    cases: list[tuple[RedisKind, str]] = [(kind, who) for kind in ENGINES for who in IDLERS]
    one_by_one = asyncio.Lock()
    found = await asyncio.gather(*(watch(kind, IDLERS[who], seconds, one_by_one) for kind, who in cases))
    rows, results = [], dict[str, float]()
    for (kind, who), rate in zip(cases, found, strict=True):
        rows += [
            (f"{kind}: {who}", name, f"{rate[name]:.2f}") for name in sorted(rate, key=rate.__getitem__, reverse=True)
        ]
        results[f"idle_{kind}_{who}_commands_per_s"] = rate["all"]
    console().print(table(f"Idle for {seconds:.0f} s", ("", "command", "a second"), rows))
    results["idle_commands_per_s"] = max(results[f"idle_{kind}_worker_commands_per_s"] for kind in ENGINES)
    if as_json:
        print_json(results)


def main() -> None:
    """Run as a command."""
    parser = options("What an idle worker asks of Redis.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds that each is watched")
    chosen = parser.parse_args()
    asyncio.run(run(chosen.seconds, as_json=chosen.json))


if __name__ == "__main__":
    main()
