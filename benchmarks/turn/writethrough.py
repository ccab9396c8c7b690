"""The floor without a cache: PostgreSQL alone, written through by hand with asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import asyncpg
import msgspec

from benchmarks.turn import plan
from benchmarks.turn.contender import new_text

CONNECTIONS = 64
"""The fastest of 16, 32 and 64 with 64 turns in flight, most of all where replies are delayed."""

TABLES = """
CREATE TABLE IF NOT EXISTS scope (name text PRIMARY KEY, revision bigint NOT NULL);
CREATE TABLE IF NOT EXISTS entry (
    name text NOT NULL, key text NOT NULL, value text NOT NULL, revision bigint NOT NULL, PRIMARY KEY (name, key)
);
"""
READ = "SELECT name, key, value FROM entry WHERE name = ANY($1::text[])"
# One statement is one transaction in one round trip: a third faster than BEGIN, UPDATE, INSERT and COMMIT.
WRITE = """
WITH bumped AS (
    UPDATE scope SET revision = revision + 1 WHERE name = ANY($1::text[]) RETURNING name, revision
)
INSERT INTO entry AS stored (name, key, value, revision)
SELECT name, $2, $3, revision FROM bumped
ON CONFLICT (name, key) DO UPDATE SET value = excluded.value, revision = excluded.revision
WHERE stored.revision < excluded.revision
"""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class WriteThrough:
    """Two round trips a turn by prepared statements: one SELECT, one guarded upsert that bumps the revisions."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @classmethod
    async def connect(cls, url: str, connections: int = CONNECTIONS) -> Self:
        """A pool that resets nothing when a connection is given back, which would be a round trip more."""
        return cls(await asyncpg.create_pool(url, min_size=connections, max_size=connections, reset=_keep))

    async def create(self, numbers: Sequence[int]) -> None:
        names = [name for number in numbers for name in plan.names(number)]
        rows = [(name, key, _text(value), 1) for name in names for key, value in plan.initial().items()]
        async with self._pool.acquire() as connection:
            await connection.execute(TABLES)
            await connection.executemany("INSERT INTO scope VALUES ($1, 1)", [(name,) for name in names])
            await connection.executemany("INSERT INTO entry VALUES ($1, $2, $3, $4)", rows)

    async def open(self, numbers: Sequence[int]) -> None:
        async with self._pool.acquire() as connection:
            await connection.fetch(READ, plan.names(numbers[0]))

    async def change(self, number: int) -> object:
        return await self._write(number, plan.CHANGED)

    async def turn(self, number: int) -> object:
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(READ, plan.names(number))
            state: dict[str, dict[str, Any]] = {name: {} for name in plan.names(number)}
            for name, key, value in rows:
                state[name][key] = _decode(value)
            await connection.execute(WRITE, plan.names(number), plan.WRITTEN, _text(new_text()))
        return state

    async def aclose(self) -> None:
        await self._pool.close()

    async def _write(self, number: int, key: str) -> object:
        async with self._pool.acquire() as connection:
            return await connection.execute(WRITE, plan.names(number), key, _text(new_text()))


def _text(value: str) -> str:
    return _encode(value).decode()


async def _keep(_connection: asyncpg.Connection) -> None:
    pass
