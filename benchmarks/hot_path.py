"""The hot path: set, update, merged get and turn, beside bare hash commands and beside the same scripts called raw.

Run ``python benchmarks/hot_path.py [--json] [--profile]``; it starts a server of its own on the loopback interface.
A turn is a merged get and then an update; nobody decodes values.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from rich.table import Table

from benchmarks.contenders import OPERATIONS, Contender, Naive, Ours, Raw, initial_state
from benchmarks.measuring import (
    Call,
    Spread,
    alternate,
    console,
    median_latency,
    options,
    print_json,
    profiled,
    rate,
    ratios,
    table,
)
from sessioncache import SessionCache, upgrade_schema
from sessioncache.durable.engine import create_engine
from tests.servers import RedisKind, RedisServer

IN_FLIGHT = 64
CALLS_ALONE = 200
CALLS_EACH = 8
ROUNDS_ALONE = 15
ROUNDS_MANY = 9

Found = dict[str, dict[str, list[float]]]
"""Operation -> contender -> one number a round."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[dict[str, Contender]]:
    """The contenders, over one server, each with its own data and connections."""
    async with AsyncExitStack() as stack:
        database = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "state.db"
        engine = create_engine(f"sqlite:///{database}")
        await upgrade_schema(engine)
        await engine.dispose()
        cache = await stack.enter_async_context(SessionCache.connect(url, f"sqlite:///{database}", app="bench"))
        sessions = [await cache.create(f"user{n}", state=initial_state()) for n in range(IN_FLIGHT)]
        clients = [await stack.enter_async_context(Redis.from_url(url)) for _ in range(2)]
        naive = Naive(clients[0])
        await naive.prepare(IN_FLIGHT)
        yield {"sessioncache": Ours(sessions), "raw": await Raw.record(clients[1], sessions), "naive": naive}


async def measure(contenders: Mapping[str, Contender], one: Callable[[Call], Awaitable[float]], rounds: int) -> Found:
    """Every operation of every contender, in alternating rounds after one that does not count."""
    found: Found = {}
    for operation in OPERATIONS:
        calls = {name: partial(one, getattr(contender, operation)) for name, contender in contenders.items()}
        await alternate(calls, 1)
        found[operation] = await alternate(calls, rounds)
    return found


def show(title: str, found: Found) -> Table:
    """A table of one measurement."""
    columns = ("", "sessioncache", "same script, raw", "naive redis-py", "÷ raw", "÷ naive")
    rows = []
    for operation, by_name in found.items():
        figures = [Spread.of(by_name[name]).shown(0) for name in ("sessioncache", "raw", "naive")]
        quotients = [ratios(by_name["sessioncache"], by_name[name]).shown() for name in ("raw", "naive")]
        rows.append((operation.replace("_", " "), *figures, *quotients))
    return table(title, columns, rows)


def results(alone: Found, many: Found) -> dict[str, float]:
    """What `--json` prints."""
    against_raw = {
        f"{name}_p50_ratio": ratios(alone[name]["sessioncache"], alone[name]["raw"]).middle
        for name in ("set", "update", "merged_get")
    }
    return against_raw | {
        "turn_p50_ratio": ratios(alone["turn"]["sessioncache"], alone["turn"]["naive"]).middle,
        "turn_rate_ratio_64": ratios(many["turn"]["sessioncache"], many["turn"]["naive"]).middle,
        **{f"{name}_p50_us": Spread.of(alone[name]["sessioncache"]).middle for name in OPERATIONS},
        **{f"{name}_rate_64": Spread.of(many[name]["sessioncache"]).middle for name in OPERATIONS},
    }


async def server_times(client: Redis, contenders: Mapping[str, Contender]) -> list[tuple[str, ...]]:
    """Per operation and contender: microseconds of the server a call, by its own statistics."""
    rows = []
    for operation in OPERATIONS:
        row = [operation.replace("_", " ")]
        for name in ("sessioncache", "naive"):
            await client.config_resetstat()
            await median_latency(getattr(contenders[name], operation), 0, CALLS_ALONE)
            stats = await client.info("commandstats")
            outer = ("cmdstat_evalsha",) if name == "sessioncache" else ("cmdstat_evalsha", "cmdstat_hgetall")
            row.append(f"{sum(stats[key]['usec'] for key in outer if key in stats) / CALLS_ALONE:.0f}")
            if name == "sessioncache":
                row.append(_inner(stats))
        rows.append(tuple(row))
    return rows


def _inner(stats: Mapping[str, Any]) -> str:
    """The commands inside of the scripts that take most time."""
    inner = {name.removeprefix("cmdstat_"): v for name, v in stats.items() if name != "cmdstat_evalsha"}
    most = sorted(inner, key=lambda name: -inner[name]["usec"])[:5]
    return ", ".join(f"{name} {inner[name]['usec'] / CALLS_ALONE:.1f}" for name in most)


async def profile(url: str, contenders: Mapping[str, Contender]) -> None:
    """Print where the time of a call goes, on both sides."""
    out = console()
    async with Redis.from_url(url) as client:
        rows = await server_times(client, contenders)
    columns = ("", "sessioncache", "of that, by command", "naive")
    out.print(table("The server's share, µs a call", columns, rows))
    for operation in ("merged_get", "update"):
        call = getattr(contenders["sessioncache"], operation)
        await profiled(f"{operation}, 3,000 calls, 1 in flight", partial(median_latency, call, 0, 3_000), out)


async def run(kind: RedisKind, scale: float, *, as_json: bool, with_profile: bool) -> None:
    """Measure, and print."""
    server = RedisServer(kind, tcp=True).start()
    try:
        async with opened(server.url) as contenders:
            if with_profile:
                await profile(server.url, contenders)
            alone = await measure(
                contenders, partial(median_latency, number=0, calls=CALLS_ALONE), round(scale * ROUNDS_ALONE)
            )
            many = await measure(
                contenders, partial(rate, in_flight=IN_FLIGHT, calls=CALLS_EACH), round(scale * ROUNDS_MANY)
            )
    finally:
        server.destroy()
    out = console()
    out.print(show("1 in flight: p50 in µs (median of the rounds, quartiles)", alone))
    out.print(show(f"{IN_FLIGHT} in flight: calls a second", many))
    if as_json:
        print_json(results(alone, many))


def main() -> None:
    """Run as a command."""
    parser = options("The hot path beside bare hash commands and beside the same scripts called raw.")
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey", help="which server to start")
    chosen = parser.parse_args()
    scale = chosen.rounds / ROUNDS_ALONE if chosen.rounds else 1.0
    asyncio.run(run(chosen.server, scale, as_json=chosen.json, with_profile=chosen.profile))


if __name__ == "__main__":
    main()
