"""The roads of calls: which modules of ours an update, a get and a flush of a hot session pass through.

``python -m tests.roads`` prints them.  Fewer are better: each is a file that whoever follows the call has to open.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from tests.helpers import Urls, connect, open_worker, upgrade
from tests.servers import RedisServer

_PACKAGES = ("sessioncache/", "sessioncache_worker/")


@dataclass
class Road:
    """What one call passed through, in the order of the first visit."""

    modules: list[str] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)


@contextmanager
def watched() -> Iterator[Road]:
    """The road of all that runs in the block, in this thread."""
    road = Road()

    def enter(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        for package in _PACKAGES:
            _, found, module = code.co_filename.rpartition(package)
            if found and "site-packages" not in code.co_filename:
                name = package[len("sessioncache") : -1] + "/" * (package != _PACKAGES[0]) + module.removesuffix(".py")
                road.modules += [name] * (name not in road.modules)
                road.functions.add(f"{name}:{code.co_qualname}")
                return

    sys.setprofile(enter)
    try:
        yield road
    finally:
        sys.setprofile(None)


async def _nothing() -> None: ...


async def _of(call: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[object]] = _nothing) -> Road:
    await before()
    await call()  # what is made once is made before
    await before()
    with watched() as road:
        await call()
    return road


async def roads() -> dict[str, Road]:
    """The roads over Valkey and SQLite."""
    server = RedisServer("valkey").start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            urls = Urls(server.url, f"sqlite:///{Path(folder)}/state.db")
            await upgrade(urls.database)
            async with connect(urls) as cache, open_worker(urls, flush_delay=0.001) as worker:
                session = await cache.create("ada", state={"a": 1, "user:b": 2, "app:c": 3})
                found = {
                    "update of a hot session": await _of(lambda: session.update({"a": 1, "user:b": 2})),
                    "get of a hot session": await _of(lambda: cache.get("ada", session.id)),
                    "get of one key": await _of(lambda: session.get("a")),
                }

                async def written() -> None:
                    await session.set("a", 2)

                found["flush of one session"] = await _of(worker.flush_once, written)
                return found
    finally:
        server.destroy()


def main() -> None:
    """Print a table."""
    table = Table("call", "modules", "functions", "which modules, in order")
    for name, road in asyncio.run(roads()).items():
        table.add_row(name, str(len(road.modules)), str(len(road.functions)), " ".join(road.modules))
    Console().print(table)


if __name__ == "__main__":
    main()
