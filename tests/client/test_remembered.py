"""What a process remembers of its writes goes once they are durable, whatever became of Redis."""

from __future__ import annotations

from sessioncache.durability import prune
from tests.helpers import Urls, connect, drain, evict, raw


async def test_what_is_durable_is_forgotten_also_where_redis_does_not_hold_it_any_more(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = [await cache.create("ada", session_id=f"s{n}", state={"n": n}) for n in range(3)]
        await drain(urls)
        evict(urls.redis)
        await made[1].get("n")  # it is hot again, as SQL had it
        await prune(cache._tiers, list(cache._ledgers))
        assert not cache._ledgers


async def test_what_is_durable_is_forgotten_after_redis_forgot_everything(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="kept", state={"n": 1})
        await drain(urls)
        await cache.create("ada", session_id="lost", state={"n": 1})
        with raw(urls.redis) as client:
            client.flushall()
        await cache.create("ada", session_id="new", state={"n": 1})
        await prune(cache._tiers, list(cache._ledgers))
        left = {one.place.ref.session for ledger in cache._ledgers for one in ledger.pending()}
        assert left == {"lost", "new"}, "who flushes is told what was lost"
