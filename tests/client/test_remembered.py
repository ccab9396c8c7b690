"""What a process remembers of its writes goes once they are durable, whatever became of Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from sessioncache import SessionCache
from sessioncache.durable import reading
from sessioncache.handle.flush_wait import prune
from tests.helpers import Urls, connect, drain, evict, raw


async def test_what_is_durable_is_forgotten_also_where_redis_does_not_hold_it_any_more(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = [await cache.create("ada", session_id=f"s{n}", state={"n": n}) for n in range(3)]
        await drain(urls)
        evict(urls.redis)
        await made[1].get("n")  # it is hot again, as SQL had it
        await prune(cache._tiers, list(cache._all_unflushed))
        assert not cache._all_unflushed


async def test_what_is_durable_is_forgotten_after_redis_forgot_everything(urls: Urls) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="kept", state={"n": 1})
        await drain(urls)
        await cache.create("ada", session_id="lost", state={"n": 1})
        with raw(urls.redis) as client:
            client.flushall()
        await cache.create("ada", session_id="new", state={"n": 1})
        await prune(cache._tiers, list(cache._all_unflushed))
        left = {one.place.ref.session for writes in cache._all_unflushed for one in writes.pending()}
        assert left == {"lost", "new"}, "who flushes is told what was lost"


@contextmanager
def statements(cache: SessionCache) -> Iterator[list[str]]:
    """What a cache asks SQL in the block."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    engine = cache._tiers.durable.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def test_r11_flush_asks_sql_for_many_scopes_at_once(urls: Urls) -> None:
    async with connect(urls) as cache:
        for n in range(300):
            await cache.create(f"u{n}", session_id=f"s{n}", state={"n": n, "user:last": n})
        await drain(urls)
        with raw(urls.redis) as client:
            client.flushall()
        with statements(cache) as asked:
            await cache.flush()
        assert len([one for one in asked if "sessioncache_state" in one]) <= 12
        assert not cache._all_unflushed


async def test_r11_much_evidence_is_read_piece_by_piece(urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST", 1_000)
    async with connect(urls) as cache:
        made = [await cache.create("ada", session_id=f"s{n}", state={"n": str(n) * 400}) for n in range(9)]
        await made[4].namespace("tools").set("n", "x" * 2_000)
        await drain(urls)
        with raw(urls.redis) as client:
            client.flushall()
        with statements(cache) as asked:
            await cache.flush()
        assert 5 <= len([one for one in asked if "s.given_at" in one]) <= 8
        assert not cache._all_unflushed
