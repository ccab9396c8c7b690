"""Redis without memory, under each eviction policy that is allowed (R15): what SQL lacks is never dropped."""

from __future__ import annotations

from typing import Any

import pytest

from sessioncache import MemoryFullError
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, dirty, drain, evict, raw, session, stored_values, upgrade

CLEAN, DIRTY = 20, 20
VALUE = "x" * 20_000


@pytest.mark.parametrize("kind", ["valkey", "redis"])
@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl", "volatile-random"])
async def test_full_memory_refuses_writes_and_everything_else_works_on(
    start_redis: StartRedis, sqlite_url: str, kind: Any, policy: str
) -> None:
    urls = Urls(start_redis(kind, maxmemory_policy=policy).url, sqlite_url)
    await upgrade(sqlite_url)
    async with connect(urls) as cache:
        for number in range(CLEAN):
            await cache.create("clean", session_id=f"s{number}", state={"v": VALUE, "n": number})
        await drain(urls)
        made = [await cache.create("dirty", session_id=f"s{n}", state={"v": VALUE, "n": n}) for n in range(DIRTY)]
        limit(urls, 0.5)
        for _ in range(5):  # each refused write lets Redis evict what it may
            with pytest.raises(MemoryFullError):
                await made[0].set("n", -1)
        assert (await made[1].get("n")) == 1, "reads work on"
        assert await cache.delete("dirty", "s2"), "deletes work on"
        assert await made[3].delete("n"), "deletes of keys work on"
        await drain(urls)
        assert dirty(urls.redis) == 0, "claims, readings and acknowledgements work on"
        limit(urls, 0)
        await made[0].set("n", "again")
        await drain(urls)
        await check_all(cache, urls)
        evict(urls.redis)
        await check_all(cache, urls)


def limit(urls: Urls, part: float) -> None:
    """Let Redis use a part of what it uses now; 0: as much as it likes."""
    with raw(urls.redis) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * part))


async def check_all(cache: Any, urls: Urls) -> None:
    """Every session is as it was written, read from the cache and from SQL."""
    for number in range(CLEAN):
        assert (await cache.get("clean", f"s{number}")).state["n"] == number
        assert (stored_values(urls.database, session("clean", f"s{number}")) or {})["n"] == number
    expected: dict[int, dict[str, Any] | None] = {n: {"v": VALUE, "n": n} for n in range(DIRTY)}
    expected |= {0: {"v": VALUE, "n": "again"}, 2: None, 3: {"v": VALUE}}
    for number, state in expected.items():
        assert stored_values(urls.database, session("dirty", f"s{number}")) == state
        if state is None:
            with pytest.raises(LookupError):
                await cache.get("dirty", f"s{number}")
        else:
            assert dict((await cache.get("dirty", f"s{number}")).state) == state
