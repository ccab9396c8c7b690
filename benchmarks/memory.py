"""What a hot session takes in Redis: sessions of three shapes, first dirty, then flushed.

``python benchmarks/memory.py [--server valkey|redis] [--sessions N] [--json]``
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import console, print_json, table
from sessioncache import SessionCache
from tests.helpers import Urls, connect, drain, raw, upgrade
from tests.servers import RedisServer

AT_ONCE = 64
"""Sessions that are created at once."""


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
    """Bytes a session: of all that Redis keeps, while dirty and flushed, and of the session's hash alone."""

    dirty: float
    flushed: float
    hash: float


SHAPES = (Shape(10, 100), Shape(50, 50), Shape(10, 1_000))


async def measure(kind: str, shape: Shape, sessions: int) -> Taken:
    """Fill an empty server."""
    server = RedisServer("redis" if kind == "redis" else "valkey").start()
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
        return Taken(dirty / sessions, (used(server) - before) / sessions, _of_a_hash(server))
    finally:
        server.destroy()


async def _create(cache: SessionCache, shape: Shape, numbers: range) -> None:
    await asyncio.gather(*(cache.create(f"user-{n}", session_id=f"session-{n}", state=shape.state) for n in numbers))


def used(server: RedisServer) -> int:
    """Bytes that the server holds data in."""
    with server.client() as client:
        return int(client.info("memory")["used_memory_dataset"])


def _of_a_hash(server: RedisServer) -> float:
    with raw(server.url) as client:
        sizes = [
            int(client.memory_usage(key, samples=0) or 0)
            for key in client.scan_iter(match="sessioncache:*:h:*", count=1000)
        ]
    return sorted(sizes)[len(sizes) // 2]


async def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--server", choices=["valkey", "redis"], default="valkey", help="the engine (valkey)")
    parser.add_argument("--sessions", type=int, default=2_000, help="sessions of each shape (2000)")
    parser.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    options = parser.parse_args()
    found = {shape: await measure(options.server, shape, options.sessions) for shape in SHAPES}
    rows = [
        (str(shape), f"{shape.size:,}", f"{t.dirty:,.0f}", f"{t.flushed:,.0f}", f"{t.hash:,.0f}")
        for shape, t in found.items()
    ]
    columns = ("keys x value", "keys and values", "dirty", "flushed", "of that the hash")
    console().print(table(f"Bytes a session ({options.server}, {options.sessions:,} sessions)", columns, rows))
    if options.json:
        print_json(
            {
                f"memory_{s.keys}x{s.length}_{n}": getattr(t, n)
                for s, t in found.items()
                for n in ("dirty", "flushed", "hash")
            }
        )


if __name__ == "__main__":
    asyncio.run(main())
