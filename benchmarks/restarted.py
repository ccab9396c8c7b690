"""A backlog after a restart of Redis, beside the same one without.

Run ``python benchmarks/restarted.py [--json] [--profile]``; it starts servers of its own.  Each of some thousand
sessions has four keys of 100 bytes, which SQL has at a smaller revision.  After the restart every hash is of an older
incarnation: a worker compares it with SQL before it flushes it.  Measured is what `flush_once()` drains, on
PostgreSQL, by the clock and by the CPU time of the worker, which other work of the machine does not make longer.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from benchmarks.flush import Flushing, postgresql
from benchmarks.measuring import Spread, console, options, print_json, profiled, ratios, table
from tests.servers import RedisServer

SESSIONS = 2_000
ROUNDS = 5


async def drained(flushing: Flushing, server: RedisServer, *, restarts: bool) -> tuple[float, float]:
    """Seconds in which a worker flushes a backlog of all, and its CPU time."""
    await flushing.make_dirty()
    if restarts:
        await asyncio.to_thread(server.restart)
    began, cpu = time.perf_counter(), time.process_time()
    await flushing.worker.flush_once()
    return time.perf_counter() - began, time.process_time() - cpu


async def run(rounds: int, *, as_json: bool, with_profile: bool) -> None:
    """Measure in alternating rounds after one that does not count, and print."""
    server = RedisServer(tcp=True, appendonly="yes").start()
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    try:
        async with AsyncExitStack() as stack:
            database_url, _ = await stack.enter_async_context(postgresql())
            flushing = await stack.enter_async_context(Flushing.open(server.url, database_url, scopes=SESSIONS))
            for number in range(rounds + 1):
                for restarts, taken in found.items():
                    one = await drained(flushing, server, restarts=restarts)
                    taken += [one] if number else []
            if with_profile:
                await flushing.make_dirty()
                await asyncio.to_thread(server.restart)
                await profiled("flush after a restart", flushing.worker.flush_once, console())
    finally:
        server.destroy()
    (plain, plain_cpu), (after, after_cpu) = (zip(*found[which], strict=True) for which in (False, True))
    slower, dearer = ratios(after, plain), ratios(after_cpu, plain_cpu)
    columns = ("seconds (median of the rounds, quartiles)", "plain", "after a restart of Redis", "÷ plain")
    rows = [
        ("by the clock", Spread.of(plain).shown(), Spread.of(after).shown(), slower.shown()),
        ("CPU of the worker", Spread.of(plain_cpu).shown(), Spread.of(after_cpu).shown(), dearer.shown()),
    ]
    console().print(table(f"A backlog of {SESSIONS} sessions of 4 keys, one worker", columns, rows))
    if as_json:
        print_json({"restarted_ratio": slower.middle, "restarted_cpu_ratio": dearer.middle})


def main() -> None:
    """Run as a command."""
    chosen = options("A backlog after a restart of Redis, beside the same one without.").parse_args()
    asyncio.run(run(chosen.rounds or ROUNDS, as_json=chosen.json, with_profile=chosen.profile))


if __name__ == "__main__":
    main()
