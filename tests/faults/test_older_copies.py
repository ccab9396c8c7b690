"""Redis comes back from an older copy of its files while SQL is newer (R17)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sessioncache import HotTierUnavailableError, SessionCache, WriteLostError
from sessioncache.operations.reflush import remark_everything
from tests.conftest import StartRedis
from tests.helpers import Urls, app, connect, dirty, drain, evict, purge_all, session, stored_values, upgrade, user
from tests.servers import RedisServer
from tests.worker.commands import run

FILES = "appendonlydir"
CONFIG: dict[str, Any] = {"appendonly": "yes", "appendfsync": "always", "auto_aof_rewrite_percentage": 0}


class Copies:
    """A server, and a copy of its files to go back to."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def take(self) -> None:
        """Remember the files as they are."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._server.folder / FILES, self._copy)

    def go_back(self) -> None:
        """Crash, and come back as at the time of the copy."""
        self._server.kill()
        shutil.rmtree(self._server.folder / FILES)
        shutil.copytree(self._copy, self._server.folder / FILES)
        self._server.start()

    @property
    def _copy(self) -> Path:
        return self._server.folder / "copy"


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, start_redis: StartRedis) -> RedisServer:
    """A server that keeps what it acknowledged."""
    return start_redis(request.param, **CONFIG)


@pytest.fixture
async def urls(server: RedisServer, database_url: str) -> Urls:
    """Both tiers, with the schema."""
    await upgrade(database_url)
    return Urls(server.url, database_url)


@pytest.mark.parametrize("dirty_in_copy", [False, True], ids=["clean", "dirty"])
async def test_what_was_flushed_after_the_copy_is_there_again(
    urls: Urls, server: RedisServer, dirty_in_copy: bool
) -> None:
    copies = Copies(server)
    async with connect(urls) as cache:
        made = await cache.create(
            "ada", session_id="s1", state={"a": "old", "gone": 1, "user:u": "old", "app:p": "old"}
        )
        if not dirty_in_copy:
            await drain(urls)
        copies.take()
        await made.update({"a": "new", "b": "new", "user:u": "new", "app:p": "new"}, delete=["gone"])
        await drain(urls)
        copies.go_back()
        expected = {"a": "new", "b": "new", "user:u": "new", "app:p": "new"}
        assert dict((await cache.get("ada", "s1")).state) == expected
        await drain(urls)
        evict(urls.redis)
        assert dict((await cache.get("ada", "s1")).state) == expected
    assert stored_values(urls.database, session("ada", "s1")) == {"a": "new", "b": "new"}
    assert stored_values(urls.database, user("ada")) == {"u": "new"}
    assert stored_values(urls.database, app()) == {"p": "new"}
    assert dirty(urls.redis) == 0


@pytest.mark.parametrize("dirty_in_copy", [False, True], ids=["clean", "dirty"])
async def test_a_delete_that_was_flushed_after_the_copy_stays(
    urls: Urls, server: RedisServer, dirty_in_copy: bool
) -> None:
    copies = Copies(server)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        if not dirty_in_copy:
            await drain(urls)
        copies.take()
        await cache.delete("ada", "s1")
        await drain(urls)
        copies.go_back()
        with pytest.raises(LookupError):
            await cache.get("ada", "s1")
        await drain(urls)
        evict(urls.redis)
        with pytest.raises(LookupError):
            await cache.get("ada", "s1")
    assert stored_values(urls.database, session("ada", "s1")) is None
    assert dirty(urls.redis) == 0


async def test_a_life_that_was_flushed_after_the_copy_is_not_mixed_with_the_one_before(
    urls: Urls, server: RedisServer
) -> None:
    copies = Copies(server)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"first": 1, "both": 1})
        copies.take()
        await cache.delete("ada", "s1")
        await cache.create("ada", session_id="s1", state={"second": 2, "both": 2})
        await drain(urls)
        copies.go_back()
        assert dict((await cache.get("ada", "s1")).state) == {"second": 2, "both": 2}
        await drain(urls)
        evict(urls.redis)
        assert dict((await cache.get("ada", "s1")).state) == {"second": 2, "both": 2}
    assert stored_values(urls.database, session("ada", "s1")) == {"second": 2, "both": 2}


async def test_a_write_that_was_not_flushed_is_told_as_lost_and_the_key_is_as_sql_has_it(
    urls: Urls, server: RedisServer
) -> None:
    copies = Copies(server)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": "flushed"})
        await drain(urls)
        copies.take()
        await made.set("a", "never flushed")
        copies.go_back()
        with pytest.raises(WriteLostError):
            await made.flush(60)
        assert await made.get("a") == "flushed"
        await made.set("a", "after")
        await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": "after"}


async def test_db_restored_takes_what_sql_has_newer_before_it_stamps(urls: Urls, server: RedisServer) -> None:
    copies = Copies(server)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": "old", "gone": 1, "user:gone": 1})
        await drain(urls)
        copies.take()
        await made.update({"a": "new"}, delete=["gone", "user:gone"])
        await drain(urls)
    copies.go_back()
    assert (await run(urls, "db", "restored")).code == 0
    await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": "new"}
    assert stored_values(urls.database, user("ada")) == {}
    evict(urls.redis)
    async with connect(urls) as cache:
        assert dict((await cache.get("ada", "s1")).state) == {"a": "new"}


async def answering(cache: SessionCache) -> None:
    """Wait until a new connection to Redis works."""
    while True:
        try:
            await cache._tiers.link.time()
            return
        except HotTierUnavailableError:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_r18_redis_that_comes_back_older_while_all_is_stamped_does_not_beat_sql(
    urls: Urls, server: RedisServer, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before or after a bucket gets the incarnation under which its hashes are stamped."""
    copies = Copies(server)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": "old", "gone": 1})
        await drain(urls)
        copies.take()
        await made.update({"a": "new", "b": "new"}, delete=["gone"])
        await drain(urls)
        fencing, incarnations = cache._tiers.fencing, cache._tiers.fencing._incarnations
        current, renew = incarnations.current, fencing.renew

        async def before(buckets: Sequence[int], unusable: Mapping[int, str], **how: bool) -> Any:
            if unusable:
                monkeypatch.undo()
                await asyncio.to_thread(copies.go_back)
                await answering(cache)
            return await current(buckets, unusable, **how)

        async def after(buckets: Iterable[int]) -> Any:
            renewed = await renew(buckets)
            await asyncio.to_thread(copies.go_back)
            await answering(cache)
            await fencing.register(renewed)  # as any other process would
            return renewed

        if when == "before":
            monkeypatch.setattr(incarnations, "current", before)
        else:
            monkeypatch.setattr(fencing, "renew", after)
        await remark_everything(cache._tiers)
        monkeypatch.undo()
        await drain(urls)
        assert dict((await cache.get("ada", "s1")).state) == {"a": "new", "b": "new"}
    assert stored_values(urls.database, session("ada", "s1")) == {"a": "new", "b": "new"}


@pytest.mark.parametrize("dirty_in_copy", [False, True], ids=["clean", "dirty"])
async def test_a_copy_older_than_the_retention_brings_nothing_back(
    urls: Urls, server: RedisServer, dirty_in_copy: bool
) -> None:
    copies = Copies(server)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"keeps": 1, "gone": 1, "user:gone": 1, "app:gone": 1})
        await made.namespace("n").update({"gone": 1, "keeps": 1})
        await cache.create("ada", session_id="s2", state={"a": 1})
        await cache.create("eve", session_id="s3", state={"a": 1, "user:secret": 1})
        if not dirty_in_copy:
            await drain(urls)
        copies.take()
        await made.update({}, delete=["gone", "user:gone", "app:gone"])
        await made.namespace("n").delete("gone")
        await cache.delete("ada", "s2")
        await cache.erase_user("eve")
        await drain(urls)
    assert await purge_all(urls) > 0
    copies.go_back()
    async with connect(urls) as cache:
        for _ in range(2):
            again = await cache.get("ada", "s1")
            assert dict(again.state) == {"keeps": 1}
            assert await again.namespace("n").items() == [("keeps", 1)]
            for who, which in (("ada", "s2"), ("eve", "s3")):
                with pytest.raises(LookupError):
                    await cache.get(who, which)
            await drain(urls)
            evict(urls.redis)
        assert {one.id for one in (await cache.list("ada")).items} == {"s1"}
        assert (await cache.list("eve")).items == []
        assert dict(await cache.user_scope("eve").refresh() or {}) == {}
    assert dirty(urls.redis) == 0
