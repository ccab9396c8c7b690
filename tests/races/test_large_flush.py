"""R6, R12: a large scope is read in pieces while others write it, and SQL never has half of a write."""

from __future__ import annotations

import asyncio

from tests.helpers import Urls, connect, open_worker, session, stored_values

KEYS = [f"k{number}" for number in range(2_000)]
"""More than one script reads, or acknowledges."""
ROUNDS = 3


async def test_r12_sql_never_has_half_of_a_write_to_a_large_scope_that_is_written_all_the_time(urls: Urls) -> None:
    def stored() -> list[object]:
        """The values that SQL has, each once."""
        values = stored_values(urls.database, session("ada", "s1")) or {}
        assert set(values) == set(KEYS)
        return list(set(values.values()))

    async with connect(urls, timeout=60) as cache, open_worker(urls, flush_delay=0.05) as worker:
        made = await cache.create("ada", session_id="s1", state=dict.fromkeys(KEYS, 0))
        is_over = asyncio.Event()

        async def write() -> int:
            count = 0
            while not is_over.is_set():
                count += 1
                await made.update(dict.fromkeys(KEYS, count))
            return count

        writing = asyncio.ensure_future(write())
        for _ in range(ROUNDS):
            await worker.flush_once()
            assert len(stored()) == 1
        is_over.set()
        count = await writing
        await worker.flush_once()
        assert stored() == [count]
