"""A herd on one cold session: 500 concurrent gets of four processes, and how often SQL was asked for its state.

Counted are the statements that read the table of entries, in every process.  The scopes of the user and the app are
hot: they have loads of their own.  ``python -m benchmarks.herd REDIS_URL DATABASE_URL`` is one of the processes: for
each line on stdin, a session id, it gets that session many times at once and answers how many statements it took.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from redis.asyncio import Redis
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.measuring import Spread, table
from benchmarks.part import Outcome, Part, Say
from benchmarks.results import figure
from benchmarks.servers import postgresql, redis_server
from sessioncache import SessionCache
from sessioncache.durable.engine import create_engine
from tests.helpers import Process, Urls, connect, drain, evict, upgrade

HERD = 500
PROCESSES = 4
KEYS = 100
ROUNDS = 7
_USER = "herder"


class Loads:
    """Counts the statements that read the table of entries."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.count = 0
        event.listen(engine.sync_engine, "before_cursor_execute", self._executed)

    def _executed(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self.count += statement.lstrip().startswith("SELECT") and "FROM sessioncache_state" in statement


async def serve(redis_url: str, database_url: str) -> None:
    """One process of the herd, until stdin ends."""
    engine = create_engine(database_url)
    loads = Loads(engine)
    loop = asyncio.get_running_loop()
    async with Redis.from_url(redis_url) as client, SessionCache(client, engine, app="herd", timeout=30) as cache:
        await cache.get(_USER, "warm")
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            before = loads.count
            found = await asyncio.gather(*(cache.get(_USER, line.strip()) for _ in range(HERD // PROCESSES)))
            if any(len(session.state) != KEYS for session in found):
                raise RuntimeError("a session was not whole")
            print(loads.count - before, flush=True)
    await engine.dispose()


@contextmanager
def herd(urls: Urls) -> Iterator[list[Process]]:
    """The processes, ready."""
    processes = [Process("benchmarks.herd", *urls) for _ in range(PROCESSES)]
    try:
        for process in processes:
            process.hear()
        yield processes
    finally:
        for process in processes:
            process.__exit__()


async def _fill(urls: Urls, sessions: int) -> None:
    async with connect(urls, app="herd") as cache:
        for name in ("warm", *(f"cold{number}" for number in range(sessions))):
            await cache.create(_USER, session_id=name, state={f"key{n}": "v" * 98 for n in range(KEYS)})
    await drain(urls)
    evict(urls.redis)


async def run(rounds: int, say: Say) -> Outcome:
    """Measure: each round on another session."""
    async with AsyncExitStack() as stack:
        say("herd: filling sessions")
        server = stack.enter_context(postgresql())
        urls = Urls(stack.enter_context(redis_server()).url, server.url(server.create_database()))
        await upgrade(urls.database)
        await _fill(urls, rounds)
        processes = stack.enter_context(herd(urls))
        say("herd: stampeding")
        counts, taken = [], []
        for number in range(rounds):
            began = time.perf_counter()
            for process in processes:
                process.say(f"cold{number}")
            counts.append(sum(int(process.hear()) for process in processes))
            taken.append((time.perf_counter() - began) * 1_000)
    title = f"{HERD} concurrent gets of {PROCESSES} processes on a cold session of {KEYS} keys, {rounds} times"
    rows = [(f"{min(counts)} to {max(counts)}", Spread.of(taken).shown(0))]
    figures = {"herd_sql_loads": max(counts), **figure("herd_ms", Spread.of(taken))}
    return Outcome(figures, [table(title, ("SQL loads of the session", "ms until all have it"), rows)])


PART = Part("herd", ("herd_sql_loads", "herd_ms"), run, ROUNDS)

if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:3]))
