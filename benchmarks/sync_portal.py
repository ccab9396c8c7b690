"""What the synchronous API costs: set and get through the portal, beside the same calls awaited.

Run ``python benchmarks/sync_portal.py [--rounds N] [--json]``; it starts a server of its own on a Unix socket.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.measuring import Call, Spread, console, median_latency, options, print_json, ratios, table
from sessioncache import Session, SessionCache, upgrade_schema
from sessioncache.durable.engine import create_engine
from sessioncache.sync import Session as SyncSession
from sessioncache.sync import SessionCache as SyncSessionCache
from tests.servers import RedisServer

CALLS = 500
ROUNDS = 15
OPERATIONS = ("set", "get")

Found = dict[str, dict[str, list[float]]]
"""Operation -> contender -> µs a call, one number a round."""


async def _upgrade(database_url: str) -> None:
    engine = create_engine(database_url)
    await upgrade_schema(engine)
    await engine.dispose()


async def awaited(redis_url: str, database_url: str, user: str, session_id: str) -> dict[str, float]:
    """µs a call, awaited on an event loop of its own."""
    async with SessionCache.connect(redis_url, database_url, app="bench") as cache:
        session = await cache.get(user, session_id)
        return {name: await median_latency(_awaitable(session, name), 0, CALLS) for name in OPERATIONS}


def _awaitable(session: Session, name: str) -> Call:
    return (lambda _: session.set("key", "value")) if name == "set" else (lambda _: session.get("key"))


def called(session: SyncSession) -> dict[str, float]:
    """µs a call, through the portal."""
    calls: dict[str, Callable[[], object]] = {
        "set": lambda: session.set("key", "value"),
        "get": lambda: session.get("key"),
    }
    return {name: _median(calls[name]) for name in OPERATIONS}


def _median(call: Callable[[], object]) -> float:
    taken: list[int] = []
    for _ in range(CALLS):
        began = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - began)
    return median(taken) / 1_000


def measure(redis_url: str, database_url: str, rounds: int) -> Found:
    """Alternating rounds, after one that does not count."""
    found: Found = {name: {"awaited": [], "called": []} for name in OPERATIONS}
    with SyncSessionCache.connect(redis_url, database_url, app="bench") as cache:
        session = cache.create("ada", state={"key": "value"})
        for turn in range(rounds + 1):
            gc.collect()
            one = {
                "awaited": asyncio.run(awaited(redis_url, database_url, "ada", session.id)),
                "called": called(session),
            }
            for contender, figures in one.items() if turn else ():
                for name, figure in figures.items():
                    found[name][contender].append(figure)
    return found


def main() -> int:
    """Measure, show, and print the ratios."""
    arguments = options(__doc__ or "").parse_args()
    server = RedisServer("valkey").start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'state.db'}"
            asyncio.run(_upgrade(url))
            found = measure(server.url, url, arguments.rounds or ROUNDS)
    finally:
        server.destroy()
    rows, values = [], {}
    for name, by_contender in found.items():
        ratio = ratios(by_contender["called"], by_contender["awaited"])
        rows.append([name, *(Spread.of(by_contender[c]).shown(0) for c in ("called", "awaited")), ratio.shown()])
        values[f"{name}_ratio"] = ratio.middle
    console().print(table("p50 in µs", ("", "synchronous", "awaited", "ratio"), rows))
    if arguments.json:
        print_json(values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
