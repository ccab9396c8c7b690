"""R18: after SQL was set back to a backup, one command has everything hot flushed again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sessioncache import FlushTimeoutError, HotTierUnavailableError, WriteLostError
from sessioncache.coordination.revalidation import Revalidator
from sessioncache.hot.layout import Layout, Place
from sessioncache.operations import reflush as restoring
from sessioncache.operations.reflush import remark_everything
from tests.conftest import StartRedis
from tests.helpers import (
    Urls,
    app,
    connect,
    dirty,
    drain,
    evict,
    execute,
    head_row,
    open_worker,
    raw,
    session,
    stored_namespaces,
    stored_values,
    upgrade,
    user,
)
from tests.worker.backups import Backup
from tests.worker.commands import run


async def test_r18_after_db_restored_everything_hot_is_in_sql_again(valkey_url: str, backup: Backup) -> None:
    urls = Urls(valkey_url, backup.url)
    await upgrade(urls.database)
    async with connect(urls) as cache:
        old = await cache.create("ada", session_id="old", state={"a": 1, "user:u": 1, "app:p": 1})
        gone = await cache.create("ada", session_id="gone", state={"a": 1})
        await drain(urls)
    backup.take()
    async with connect(urls) as cache:
        old = await cache.get("ada", "old")
        await old.update({"a": 2, "b": 2, "user:u": 2, "app:p": 2})
        await cache.create("ada", session_id="young", state={"a": 2})
        await cache.delete("ada", gone.id)
        await drain(urls)
    backup.restore()
    assert stored_values(urls.database, session("ada", "old")) == {"a": 1}
    answer = await run(urls, "db", "restored")
    assert answer.code == 0
    assert answer.said["scopes"] >= 5
    await drain(urls)
    assert stored_values(urls.database, session("ada", "old")) == {"a": 2, "b": 2}
    assert stored_values(urls.database, session("ada", "young")) == {"a": 2}
    assert stored_values(urls.database, user("ada")) == {"u": 2}
    assert stored_values(urls.database, app()) == {"p": 2}
    head = head_row(urls.database, session("ada", "gone"))
    assert head is not None
    assert head[2], "deleted again"
    evict(urls.redis)
    async with connect(urls) as cache:
        assert {one.id for one in (await cache.list("ada")).items} == {"old", "young"}
        assert dict((await cache.get("ada", "old")).state) == {"a": 2, "b": 2, "user:u": 2, "app:p": 2}
    assert dirty(urls.redis) == 0


async def test_r11_what_was_flushed_before_the_restore_is_no_evidence_any_more(valkey_url: str, backup: Backup) -> None:
    urls = Urls(valkey_url, backup.url)
    await upgrade(urls.database)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
    backup.take()
    async with connect(urls) as cache:
        made = await cache.get("ada", "s1")
        await made.set("a", 2)
        await drain(urls)
        backup.restore()
        assert (await run(urls, "db", "restored")).code == 0
        with pytest.raises(FlushTimeoutError):
            await made.flush(1)
        flushing = asyncio.ensure_future(made.flush(10))
        await drain(urls)
        await flushing
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 2}


@pytest.mark.parametrize("drained", [True, False])
async def test_r11_a_clear_that_redis_lost_is_not_shown_by_what_was_stamped_anew(
    start_redis: StartRedis, backup: Backup, drained: bool
) -> None:
    server = start_redis(save="", appendonly="no")
    urls = Urls(server.url, backup.url)
    await upgrade(urls.database)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 2})
        await drain(urls)
        await made.flush(60)
        with raw(server.url) as client:
            client.save()
        assert await made.clear() == 2
        server.kill()
        server.start()
        assert (await run(urls, "db", "restored")).code == 0
        if drained:
            await drain(urls)
        with pytest.raises(WriteLostError):
            await made.flush(5)
        await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 1, "b": 2}


async def test_r11_a_clear_is_shown_by_what_was_stamped_anew_where_nothing_else_lives(
    valkey_url: str, backup: Backup
) -> None:
    urls = Urls(valkey_url, backup.url)
    await upgrade(urls.database)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 2})
        await drain(urls)
        await made.flush(60)
        backup.take()
        await made.clear()
        await made.set("c", 3)
        await drain(urls)
        backup.restore()
        assert (await run(urls, "db", "restored")).code == 0
        with pytest.raises(FlushTimeoutError):
            await made.flush(1)
        await drain(urls)
        await made.flush(20)
    assert stored_values(urls.database, session("ada", "s1")) == {"c": 3}


async def with_namespace(valkey_url: str, backup: Backup) -> Urls:
    """A namespace newer than the backup, whose session was evicted; with that backup's SQL."""
    urls = Urls(valkey_url, backup.url)
    await upgrade(urls.database)
    async with connect(urls) as cache:
        space = (await cache.create("ada", session_id="s1")).namespace("n")
        await space.set("a", 1)
        await drain(urls)
        backup.take()
        await space.set("a", 2)
        await drain(urls)
    with raw(urls.redis) as client:
        assert client.delete(Layout("sessioncache", 256).place(session("ada", "s1")).hash) == 1
    backup.restore()
    return urls


async def test_r18_a_namespace_whose_session_was_evicted_is_marked_with_it(valkey_url: str, backup: Backup) -> None:
    urls = await with_namespace(valkey_url, backup)
    assert (await run(urls, "db", "restored")).code == 0
    await drain(urls)
    assert (stored_namespaces(urls.database, session("ada", "s1")) or {}).get("n") == {"a": 2}


async def test_r18_a_namespace_whose_session_is_in_neither_tier_is_told_and_dropped(
    valkey_url: str, backup: Backup, caplog: pytest.LogCaptureFixture
) -> None:
    urls = await with_namespace(valkey_url, backup)
    execute(urls.database, "DELETE FROM sessioncache_session")
    async with open_worker(urls) as worker:
        await remark_everything(worker._tiers)
    assert "is in neither tier: it is dropped" in caplog.text
    with raw(urls.redis) as client:
        assert list(client.scan_iter("sessioncache:*:h:n*", count=1000)) == []


async def test_r18_what_cannot_be_marked_ends_with_an_error(
    valkey_url: str, backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = await with_namespace(valkey_url, backup)

    async def stamp(_: Revalidator, places: Sequence[Place], *__: object) -> tuple[list[Place], list[object]]:
        return list(places), []

    monkeypatch.setattr(Revalidator, "stamp", stamp)
    monkeypatch.setattr(restoring, "_PAUSE", 0.0)
    async with open_worker(urls) as worker:
        await worker._tiers.backlog.note_older()
        with pytest.raises(HotTierUnavailableError, match="could not be marked"):
            await remark_everything(worker._tiers)
        assert await worker._tiers.backlog.is_older()
