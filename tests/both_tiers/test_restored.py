"""R18: after SQL forgot, everything hot is flushed again, and what was flushed before is no evidence any more."""

from __future__ import annotations

from sessioncache import SessionCache
from sessioncache.operations.reflush import remark_everything
from tests.helpers import Urls, dirty, drain, execute, head_row, open_worker, session, stored_values, user

SCOPE = session("ada", "s1")


def lose(urls: Urls, *tables: str) -> None:
    """The database is as it was before anything of these tables."""
    for table in tables:
        execute(urls.database, f"DELETE FROM sessioncache_{table}")


async def test_after_a_restored_backup_everything_hot_is_flushed_again(cache: SessionCache, urls: Urls) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1})
    await drain(urls)
    await cache.flush(60)
    lose(urls, "state", "session", "user_scope")
    marked = await remark_everything(cache._tiers)
    assert (marked.scopes, dirty(urls.redis)) == (3, 3), "with the app's, which has no keys"
    await drain(urls)
    assert stored_values(urls.database, SCOPE) == {"a": 1}
    assert stored_values(urls.database, user("ada")) == {"u": 1}
    assert await made.get("a") == 1


async def test_what_was_flushed_before_the_restore_is_no_evidence_any_more(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    async with open_worker(urls) as worker:
        await worker._check()
        dirt = await worker.flusher.read([(SCOPE.bucket, SCOPE.member)])
        committed = await worker.flusher.commit(dirt, await worker._tiers.durable.clock())
        assert len(committed) == 1
        lose(urls, "state", "session")
        await remark_everything(cache._tiers)
        assert await worker.flusher.acknowledge(committed) == 0, "that transaction is not in the backup"
        assert dirty(urls.redis) == 3
        await worker.flush_once()
    assert stored_values(urls.database, SCOPE) == {"a": 1}


async def test_the_janitor_has_flushed_again_what_sql_lost(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1, "b": 2})
    await drain(urls)
    lose(urls, "state")
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 1
        await worker.flush_once()
        assert stored_values(urls.database, SCOPE) == {"a": 1, "b": 2}
        assert await worker._janitor.compare_sample() == 0


async def test_the_janitor_finds_that_a_scope_without_keys_was_forgotten(cache: SessionCache, urls: Urls) -> None:
    shared = cache.user_scope("ada")
    await shared.set("u", 1)
    await shared.delete("u")
    await drain(urls)
    lose(urls, "state", "user_scope")
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample() == 1
        await worker.flush_once()
        assert head_row(urls.database, user("ada")) is not None
        assert await worker._janitor.compare_sample() == 0
