"""Batches: a thousand sessions read and written in one batch, beside the same calls one at a time and by gather.

Run ``python benchmarks/batch.py [--rounds N] [--json]``; it starts a server of its own on the loopback interface.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.measuring import Spread, alternate, console, options, print_json, ratios, table
from sessioncache import Session, SessionCache, sync, upgrade_schema
from sessioncache.durable.engine import create_engine
from tests.servers import RedisServer

SESSIONS = 1_000
TEXT = "what an agent remembers of a conversation"
STATE = {f"{prefix}key{n}": TEXT for prefix, keys in (("", 10), ("user:", 5), ("app:", 5)) for n in range(keys)}
ROUNDS = 7
AWAITED = ("batch", "gather", "one at a time")
CALLED = ("batch, without await", "one at a time, without await")

Found = dict[str, list[float]]
"""Contender -> sessions read and written a second, one number a round."""


async def _batch(cache: SessionCache, sessions: Sequence[Session]) -> None:
    async with cache.batch() as batch:
        for session in sessions:
            batch.on(session).refresh()
            batch.on(session).set("note", TEXT)


async def _turn(session: Session) -> None:
    await session.refresh()
    await session.set("note", TEXT)


async def _gather(sessions: Sequence[Session]) -> None:
    await asyncio.gather(*map(_turn, sessions))


async def _one_at_a_time(sessions: Sequence[Session]) -> None:
    for session in sessions:
        await _turn(session)


def _called_batch(cache: sync.SessionCache, sessions: Sequence[sync.Session]) -> None:
    with cache.batch() as batch:
        for session in sessions:
            batch.on(session).refresh()
            batch.on(session).set("note", TEXT)


def _called_one_at_a_time(sessions: Sequence[sync.Session]) -> None:
    for session in sessions:
        session.refresh()
        session.set("note", TEXT)


async def _rate(work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return SESSIONS / (time.perf_counter() - began)


async def measure(redis_url: str, database_url: str, rounds: int) -> Found:
    """Alternating rounds of all contenders, after one that does not count; the schema is there."""
    async with SessionCache.connect(redis_url, database_url, app="bench") as cache:
        async with cache.batch() as batch:
            made = [batch.create(f"user{n}", session_id="s", state=STATE) for n in range(SESSIONS)]
        sessions = [one.result() for one in made]
        with await asyncio.to_thread(sync.SessionCache.connect, redis_url, database_url, app="bench") as called:
            handles = await asyncio.to_thread(_handles, called)
            works: dict[str, Callable[[], Awaitable[None]]] = {
                AWAITED[0]: lambda: _batch(cache, sessions),
                AWAITED[1]: lambda: _gather(sessions),
                AWAITED[2]: lambda: _one_at_a_time(sessions),
                CALLED[0]: lambda: asyncio.to_thread(_called_batch, called, handles),
                CALLED[1]: lambda: asyncio.to_thread(_called_one_at_a_time, handles),
            }
            contenders = {name: _contender(work) for name, work in works.items()}
            await alternate(contenders, 1)
            return await alternate(contenders, rounds)


def _contender(work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[float]]:
    return lambda: _rate(work)


def _handles(cache: sync.SessionCache) -> list[sync.Session]:
    with cache.batch() as batch:
        found = [batch.get(f"user{n}", "s") for n in range(SESSIONS)]
    return [one.result() for one in found]


def figures(found: Found) -> dict[str, Spread]:
    """How many times as fast a batch is."""
    return {
        "batch_ratio": ratios(found[AWAITED[0]], found[AWAITED[2]]),
        "batch_gather_ratio": ratios(found[AWAITED[0]], found[AWAITED[1]]),
        "batch_sync_ratio": ratios(found[CALLED[0]], found[CALLED[1]]),
    }


def show(found: Found) -> Table:
    """All contenders, each beside its kind's calls one at a time."""
    rows = [
        (name, Spread.of(found[name]).shown(0), ratios(found[name], found[kind[-1]]).shown())
        for kind in (AWAITED, CALLED)
        for name in kind
    ]
    return table(f"{SESSIONS:,} sessions, each read and written", ("", "sessions a second", "÷ one at a time"), rows)


async def run(rounds: int) -> Found:
    """Measure over a server and a database of its own."""
    server = RedisServer("valkey", tcp=True).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'state.db'}"
            engine = create_engine(url)
            await upgrade_schema(engine)
            await engine.dispose()
            return await measure(server.url, url, rounds)
    finally:
        server.destroy()


def main() -> int:
    """Measure, show, and print the ratios."""
    arguments = options(__doc__ or "").parse_args()
    found = asyncio.run(run(arguments.rounds or ROUNDS))
    console().print(show(found))
    if arguments.json:
        print_json({name: spread.middle for name, spread in figures(found).items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
