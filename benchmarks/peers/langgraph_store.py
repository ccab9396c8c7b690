"""langgraph's Postgres store: a namespace a scope, an item a key.

It collects the calls of one tick of the event loop into one pipeline of its own accord.  A scope is read by one search.
With 64 in flight no other way that was tried differed by more than its spread: ten gets, a batch of its own by each
agent, pools of 4 and of 16.  One turn at a time is faster over a single connection, or with a batch of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers.peer import KEYS, PREFIXES, AsyncPeer, changes, check, initial_state
from benchmarks.peers.stage import Stage


class LanggraphStore(AsyncPeer):
    """One store for all agents, as its batching wants it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._round = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, stage: Stage) -> AsyncIterator[LanggraphStore]:
        """The store, with a pool."""
        from langgraph.store.postgres import AsyncPostgresStore

        pool: Any = {"min_size": 4, "max_size": 4}
        async with AsyncPostgresStore.from_conn_string(stage.database(), pool_config=pool) as store:
            await store.setup()
            yield cls(store)

    async def prepare(self, sessions: int) -> None:
        """See AsyncPeer."""
        self._round += 1
        for number in range(sessions):
            await self._put(number, initial_state())

    async def turn(self, number: int, turn: int) -> None:
        """See AsyncPeer."""
        found = await asyncio.gather(
            *(self._store.asearch(self._namespace(prefix, number), limit=KEYS) for prefix in PREFIXES)
        )
        state = {
            prefix + item.key: item.value["value"]
            for prefix, items in zip(PREFIXES, found, strict=True)
            for item in items
        }
        check(state)
        await self._put(number, changes(turn))

    async def _put(self, number: int, state: dict[str, str]) -> None:
        await asyncio.gather(*(self._put_one(number, key, value) for key, value in state.items()))

    async def _put_one(self, number: int, key: str, value: str) -> None:
        prefix = next(p for p in reversed(PREFIXES) if key.startswith(p))
        await self._store.aput(self._namespace(prefix, number), key.removeprefix(prefix), {"value": value}, index=False)

    def _namespace(self, prefix: str, number: int) -> tuple[str, ...]:
        app = f"app{self._round}"
        if prefix == "app:":
            return ("app", app)
        return ("user" if prefix else "session", app, f"n{number}")
