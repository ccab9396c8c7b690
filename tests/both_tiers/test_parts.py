"""What is looked into beside the batches: one part at a time, and no more of it in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sessioncache_worker.flusher import Claimed

from sessioncache import SessionCache
from sessioncache.primitives.entries import Dirt
from tests.helpers import Urls, open_worker
from tests.waiting import wait_until_async


async def test_the_dirt_of_a_part_is_read_when_it_can_be_committed(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    async with open_worker(urls) as worker:
        flusher, found = worker.flusher, []
        read = flusher.read

        async def note(claimed: Sequence[Claimed]) -> list[Dirt]:
            found.append(claimed)
            return await read(claimed)

        monkeypatch.setattr(flusher, "read", note)
        scopes = await worker._claim(list(worker._buckets), everything=True)
        await flusher._free.acquire()
        part = asyncio.ensure_future(flusher.flush_part(scopes))
        await wait_until_async(lambda: flusher._free._waiters, 20, "the part waits")
        assert not found
        flusher._free.release()
        assert await part > 0
