"""What a hot session takes in Redis, beside a bare hash of the same data; on both engines.

``python benchmarks/memory.py [--server valkey|redis] [--sessions N] [--json]``

Sessions are clean: the database has them.  Their memory is what Redis gives back when their hashes are deleted: the
names, the entries of its tables and the TTLs count; what it keeps beside them, operation ids of two minutes for
instance, does not.  A bare hash has the same keys, JSON texts, TTL and length of name.  "Dirty" is all that Redis keeps
before the flush, marks, indexes and operation ids included.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.table import Table

from benchmarks.measuring import console, print_json, table
from benchmarks.part import Outcome, Part, Say
from benchmarks.results import missing
from benchmarks.servers import Missing
from sessioncache import SessionCache
from tests.helpers import Urls, connect, drain, upgrade
from tests.servers import RedisKind, RedisServer
from tests.waiting import wait_until

AT_ONCE = 64
"""Sessions that are created at once."""
SESSIONS = 1_000
ENGINES: tuple[RedisKind, ...] = ("valkey", "redis")
_TTL = 86_400


@dataclass(frozen=True, slots=True)
class Shape:
    """Keys of a session, and the characters of each value."""

    keys: int
    length: int

    def __str__(self) -> str:
        return f"{self.keys} x {self.length} B"

    @property
    def state(self) -> dict[str, str]:
        """What a session of this shape begins with; keys have ten characters."""
        return {f"key-{number:06}": "v" * self.length for number in range(self.keys)}

    @property
    def size(self) -> int:
        """Bytes of the keys, and of the values as JSON."""
        return self.keys * (10 + self.length + 2)


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes a session: all that Redis keeps of a dirty one, a clean one's hash, a bare hash."""

    dirty: float
    clean: float
    bare: float

    @property
    def ratio(self) -> float:
        """Of a clean session's hash to the bare one."""
        return self.clean / self.bare


SHAPES = {"memory_ratio": Shape(10, 100), "memory_ratio_10x1000": Shape(10, 1_000), "memory_ratio_50x50": Shape(50, 50)}
"""By the keys of their ratios."""


async def measure(kind: RedisKind, shape: Shape, sessions: int) -> Taken:
    """Fill an empty server."""
    server = RedisServer(kind).start()
    try:
        urls = Urls(server.url, f"sqlite:///{server.folder}/state.db")
        await upgrade(urls.database)
        async with connect(urls) as cache:
            await cache.create("nobody", session_id="first")  # scripts and connections are there from now on
            before = used(server)
            for start in range(0, sessions, AT_ONCE):
                await _create(cache, shape, range(start, min(start + AT_ONCE, sessions)))
            dirty = used(server) - before
        await drain(urls)
        with server.client() as client:
            names = list(client.scan_iter(match="sessioncache:*:h:s*", count=1000))
            clean = given_back(client, names)
            bare = given_back(client, _fill_bare(client, shape, names))
        return Taken(dirty / sessions, clean / len(names), bare / len(names))
    finally:
        server.destroy()


async def _create(cache: SessionCache, shape: Shape, numbers: range) -> None:
    await asyncio.gather(*(cache.create(f"user-{n}", session_id=f"session-{n}", state=shape.state) for n in numbers))


def used(server: RedisServer) -> int:
    """Bytes that the server holds data in."""
    with server.client() as client:
        return int(client.info("memory")["used_memory_dataset"])


def given_back(client: redis.Redis, names: Sequence[bytes]) -> int:
    """Bytes that the server uses less once keys are deleted."""
    before = _used(client)
    client.delete(*names)
    wait_until(lambda: not client.info("memory")["lazyfree_pending_objects"], 20, "all is freed")
    return before - _used(client)


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def _fill_bare(client: redis.Redis, shape: Shape, names: Sequence[bytes]) -> list[bytes]:
    """The same data under other names of the same length."""
    fields = [part for key, value in shape.state.items() for part in (key, f'"{value}"')]
    bare = [b"b" + name[1:] for name in names]
    for name in bare:
        with client.pipeline(transaction=False) as pipeline:
            pipeline.hset(name, items=fields)
            pipeline.expire(name, _TTL)
            pipeline.execute()
    return bare


Found = dict[tuple[RedisKind, str], Taken]
"""By engine and key of the ratio."""


async def measure_all(engines: Sequence[RedisKind], sessions: int, say: Say) -> Found:
    """Every shape on every engine."""
    found: Found = {}
    for engine in engines:
        for key, shape in SHAPES.items():
            say(f"memory: {shape} in {engine}")
            found[engine, key] = await measure(engine, shape, sessions)
    return found


def results(found: Found) -> dict[str, float]:
    """Ratios and bytes; those of Valkey have no name of their engine in their keys."""
    figures: dict[str, float] = {}
    for (engine, key), taken in found.items():
        suffix = "" if engine == "valkey" else f"_{engine}"
        shape = SHAPES[key]
        figures[key + suffix] = taken.ratio
        for name in ("dirty", "clean", "bare"):
            figures[f"memory_{shape.keys}x{shape.length}_{name}{suffix}"] = getattr(taken, name)
    return figures


def shown(found: Found, sessions: int) -> Table:
    """For people."""
    rows = [
        (
            f"{engine}: {SHAPES[key]}",
            f"{SHAPES[key].size:,}",
            *(f"{value:,.0f}" for value in (taken.dirty, taken.clean, taken.bare)),
            f"{taken.ratio:.2f}",
        )
        for (engine, key), taken in found.items()
    ]
    columns = ("keys x value", "keys and values", "dirty", "clean", "a bare hash", "clean ÷ bare")
    return table(f"Bytes a session ({sessions:,} sessions)", columns, rows)


async def run(rounds: int, say: Say) -> Outcome:
    """The suite's part; the engines that are installed.  Memory does not vary: there is one round whatever is asked."""
    outcome = Outcome()
    for engine in ENGINES:
        try:
            found = await measure_all([engine], SESSIONS, say)
        except Missing as error:
            suffix = "" if engine == "valkey" else f"_{engine}"
            outcome.figures |= missing([key + suffix for key in SHAPES], str(error))
            continue
        outcome.figures |= results(found)
        outcome.tables.append(shown(found, SESSIONS))
    return outcome


PART = Part("memory", tuple(SHAPES), run, 1)


async def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--server", choices=ENGINES, help="one engine (both)")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help=f"sessions of each shape ({SESSIONS})")
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    options = parser.parse_args()
    engines = (options.server,) if options.server else ENGINES
    found = await measure_all(engines, options.sessions, lambda _: None)
    console().print(shown(found, options.sessions))
    if options.json:
        print_json(results(found))


if __name__ == "__main__":
    asyncio.run(main())
