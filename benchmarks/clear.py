"""What a clear of a large namespace costs others: the longest gap between the PINGs of another client meanwhile.

``python benchmarks/clear.py [--json] [--rounds N]``; it starts servers of its own, over SQLite files.  A namespace of
10,000 texts is cleared while all of it is hot and unflushed, and while all of it is in SQL alone: then it is loaded
first.  Beside them the gap while nothing is done, which is the machine's.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import Spread, console, options, print_json, table
from sessioncache import Namespace, SessionCache
from tests.helpers import Urls, connect, drain, evict, in_calls, upgrade
from tests.servers import RedisKind, RedisServer
from tests.tool.pinging import Pinging

KEYS = 10_000
ROUNDS = 7
TEXTS = {f"key{number}": f"a text of about fifty characters, number {number}" for number in range(KEYS)}


class Cleared(NamedTuple):
    """One clear: how long it took, and the gap meanwhile; in milliseconds."""

    taken: float
    gap: float


async def idle(_space: Namespace) -> int:
    """Nothing, for as long as a clear takes about."""
    await asyncio.sleep(0.15)
    return KEYS


async def clear(space: Namespace) -> int:
    """The number of keys."""
    return await space.clear()


async def measure(pinging: Pinging, space: Namespace, do: Callable[[Namespace], Awaitable[int]]) -> Cleared:
    """Do it while the other client measures."""
    pinging.begin()
    began = time.perf_counter()
    count = await do(space)
    taken = time.perf_counter() - began
    gap = pinging.end()
    if count != KEYS:
        raise RuntimeError(f"{count} keys were cleared, not {KEYS}")
    return Cleared(taken * 1_000, gap)


async def one_round(cache: SessionCache, urls: Urls, pinging: Pinging) -> dict[str, Cleared]:
    """A new session; each case."""
    space = (await cache.create("ada")).namespace("big")
    found = {"idle": await measure(pinging, space, idle)}
    for some in in_calls(TEXTS):
        await space.update(some)
    found["unflushed"] = await measure(pinging, space, clear)
    for some in in_calls(TEXTS):
        await space.update(some)
    await drain(urls)
    evict(urls.redis)
    found["evicted"] = await measure(pinging, space, clear)
    await drain(urls)
    return found


async def run_engine(kind: RedisKind, rounds: int) -> dict[str, list[Cleared]]:
    """All rounds on one engine."""
    server = RedisServer(kind).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            urls = Urls(server.url, f"sqlite:///{folder}/state.db")
            await upgrade(urls.database)
            async with connect(urls, timeout=30) as cache:
                with Pinging(urls.redis) as pinging:
                    await one_round(cache, urls, pinging)
                    all_rounds = [await one_round(cache, urls, pinging) for _ in range(rounds)]
    finally:
        server.destroy()
    return {case: [one[case] for one in all_rounds] for case in all_rounds[0]}


async def run(rounds: int, *, as_json: bool) -> None:
    """Measure both engines, and print."""
    rows, results = [], dict[str, float]()
    for kind in ("redis", "valkey"):
        for case, cleared in (await run_engine(kind, rounds)).items():
            gap, taken = (Spread.of([getattr(one, name) for one in cleared]) for name in ("gap", "taken"))
            rows.append((f"{kind}: {case}", gap.shown(1), "" if case == "idle" else taken.shown(0)))
            results[f"clear_{kind}_{case}_gap_ms"] = gap.middle
            if case != "idle":
                results[f"clear_{kind}_{case}_ms"] = taken.middle
    columns = ("", "longest gap between PINGs, ms (quartiles)", "the clear, ms (quartiles)")
    console().print(table(f"Clear of a namespace of {KEYS} texts", columns, rows))
    if as_json:
        print_json(results)


def main() -> None:
    """Run as a command."""
    chosen = options("What a clear of a large namespace costs others.").parse_args()
    asyncio.run(run(chosen.rounds or ROUNDS, as_json=chosen.json))


if __name__ == "__main__":
    main()
