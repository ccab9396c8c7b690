"""R18: SQL comes back older while Redis lives on: nothing that was deleted comes back, and what is hot stays."""

from __future__ import annotations

import pytest

from sessioncache import SessionCache
from tests.helpers import (
    Urls,
    connect,
    dirty,
    drain,
    evict,
    open_worker,
    session,
    stored_namespaces,
    stored_values,
    upgrade,
    user,
)
from tests.worker.backups import Backup
from tests.worker.commands import run


async def begin(valkey_url: str, backup: Backup) -> Urls:
    """Both tiers, a backup of what they held at first, and newer changes of every kind, flushed."""
    urls = Urls(valkey_url, backup.url)
    await upgrade(urls.database)
    async with connect(urls) as cache:
        made = await cache.create(
            "ada", session_id="s1", state={"keeps": 1, "gone": 1, "user:gone": 1, "user:keeps": 1}
        )
        await made.namespace("n").update({"gone": 1, "keeps": 1})
        other = await cache.create("ada", session_id="s2", state={"gone": 1, "also": 1})
        await other.namespace("n").set("gone", 1)
        await cache.create("ada", session_id="s3", state={"a": 1})
        await drain(urls)
    backup.take()
    async with connect(urls) as cache:
        made = await cache.get("ada", "s1")
        await made.update({"new": 2, "keeps": 2, "user:keeps": 2}, delete=["gone", "user:gone"])
        await made.namespace("n").update({"keeps": 2}, delete=["gone"])
        other = await cache.get("ada", "s2")
        assert await other.clear() == 2
        assert await other.namespace("n").clear() == 1
        await cache.delete("ada", "s3")
        await drain(urls)
    assert dirty(urls.redis) == 0
    backup.restore()
    return urls


async def shows_the_newest(urls: Urls) -> None:
    """What was newest in Redis is in both tiers, and what was deleted is in none."""
    async with connect(urls) as cache:
        await _check(cache)
    await drain(urls)
    assert dirty(urls.redis) == 0
    evict(urls.redis)
    async with connect(urls) as cache:
        await _check(cache)
    assert stored_values(urls.database, user("ada")) == {"keeps": 2}
    spaces = stored_namespaces(urls.database, session("ada", "s1"))
    assert spaces == {"": {"keeps": 2, "new": 2}, "n": {"keeps": 2}}
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample(100) == 0


async def _check(cache: SessionCache) -> None:
    made = await cache.get("ada", "s1")
    assert dict(made.state) == {"keeps": 2, "new": 2, "user:keeps": 2}
    assert await made.namespace("n").items() == [("keeps", 2)]
    other = await cache.get("ada", "s2")
    assert dict(other.state) == {"user:keeps": 2}
    assert await other.namespace("n").items() == []
    with pytest.raises(LookupError):
        await cache.get("ada", "s3")
    assert {one.id for one in (await cache.list("ada")).items} == {"s1", "s2"}


async def test_after_the_command_nothing_that_was_deleted_comes_back(valkey_url: str, backup: Backup) -> None:
    urls = await begin(valkey_url, backup)
    assert (await run(urls, "db", "restored")).code == 0
    await drain(urls)
    evict(urls.redis)
    await shows_the_newest(urls)


async def test_without_the_command_the_next_flush_finds_it_and_everything_hot_is_written_again(
    valkey_url: str, backup: Backup, caplog: pytest.LogCaptureFixture
) -> None:
    urls = await begin(valkey_url, backup)
    async with connect(urls) as cache:
        made = await cache.get("ada", "s1")
        await made.set("another", 3)
        await drain(urls)
        await made.delete("another")
        await drain(urls)
    assert "SQL came back older than it was" in caplog.text
    async with open_worker(urls) as worker:
        assert not await worker._tiers.backlog.is_older(), "and it is over"
    evict(urls.redis)
    await shows_the_newest(urls)


async def test_the_flush_that_finds_it_says_so_to_all_before_anything_is_compared(
    valkey_url: str, backup: Backup
) -> None:
    urls = await begin(valkey_url, backup)
    async with connect(urls) as cache:
        await (await cache.get("ada", "s1")).set("another", 3)
    async with open_worker(urls) as worker:
        await worker._check()
        await worker._flush(await worker._claim(list(worker._buckets), everything=True))
        assert await worker._tiers.backlog.is_older()
        await worker.flush_once()


async def test_without_the_command_and_without_a_write_the_janitor_finds_it(valkey_url: str, backup: Backup) -> None:
    urls = await begin(valkey_url, backup)
    async with open_worker(urls) as worker:
        assert await worker._janitor.compare_sample(1) == 1
        await worker.flush_once()
    evict(urls.redis)
    await shows_the_newest(urls)
