"""R7, R11, R17: flush() never says yes where SQL has a newer row of somebody else; what is newer there comes here."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from sessioncache import SessionNotFoundError, WriteLostError
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, dirty, drain, execute, fetch, session, stored_values, upgrade, user
from tests.servers import RedisServer

AHEAD = 3_600_000_000
"""Microseconds by which a foreign row's revision is ahead."""


def make_foreign(urls: Urls, key: str) -> None:
    """Another hot tier, its clock ahead, has written a key to SQL."""
    execute(
        urls.database,
        f"UPDATE sessioncache_state SET value = '\"foreign\"', revision = revision + {AHEAD} WHERE key = ?",
        key,
    )


def revision(urls: Urls, key: str) -> int:
    """The revision of a row in SQL."""
    return int(fetch(urls.database, "SELECT revision FROM sessioncache_state WHERE key = ?", key)[0][0])


async def test_r11_flush_waits_until_what_was_written_is_above_the_foreign_row(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 1})
        await drain(urls)
        make_foreign(urls, "a")
        foreign = revision(urls, "a")
        await made.set("a", "mine")
        flushing = asyncio.ensure_future(made.flush(60))
        await drain(urls)
        await flushing
        assert stored_values(urls.database, session("ada", "s1")) == {"a": "mine", "b": 1}
        assert revision(urls, "a") > foreign
        assert await made.get("a") == "mine"
        assert dirty(urls.redis) == 0


async def test_r17_what_nobody_wrote_here_is_taken_from_the_foreign_row(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "b": 1})
        await drain(urls)
        for key in "ab":
            make_foreign(urls, key)
        await made.set("a", "mine")
        await drain(urls)
        await made.flush(60)
        assert stored_values(urls.database, session("ada", "s1")) == {"a": "mine", "b": "foreign"}
        assert await made.get("b") == "foreign"


async def test_r11_a_delete_is_durable_only_above_the_foreign_row(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        make_foreign(urls, "a")
        await made.delete("a")
        await drain(urls)
        await made.flush(60)
        assert stored_values(urls.database, session("ada", "s1")) == {}


def keep(server: RedisServer, copy: Path) -> None:
    """Copy what a server would start from."""
    with server.client() as client:
        client.save()
    shutil.copy(server.folder / "dump.rdb", copy)


def go_back(server: RedisServer, copy: Path) -> None:
    """Restart a server from an older copy of its file."""
    server.kill()
    shutil.copy(copy, server.folder / "dump.rdb")
    server.start()


async def test_r11_a_redis_from_an_older_copy_proves_nothing_of_what_it_lost(
    database_url: str, start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis("redis")
    urls = Urls(server.url, database_url)
    await upgrade(database_url)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "user:u": 1})
        await made.set("b", 1)
        keep(server, tmp_path / "older.rdb")
        await drain(urls)
        await made.update({"a": 2, "user:u": 2})
        await drain(urls)
        await made.set("a", 3)
        go_back(server, tmp_path / "older.rdb")
        with pytest.raises(WriteLostError):
            await made.flush(60)
        assert await made.get("a") == 2, "SQL is newer than the copy, whose mark is older"
        await drain(urls)
        await cache.flush(60)
        assert dict((await cache.get("ada", "s1")).state) == {"a": 2, "b": 1, "user:u": 2}
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 2, "b": 1}
    assert stored_values(urls.database, user("ada")) == {"u": 2}
    assert dirty(urls.redis) == 0


async def test_r11_what_was_durable_before_redis_went_back_is_shown_by_sql(
    database_url: str, start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis()
    urls = Urls(server.url, database_url)
    await upgrade(database_url)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        keep(server, tmp_path / "older.rdb")
        await made.set("a", 2)
        await drain(urls)
        go_back(server, tmp_path / "older.rdb")
        await made.flush(60)
        assert await made.increment("a") == 3
        await drain(urls)
        await made.flush(60)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 3}


async def test_r17_a_session_deleted_since_the_copy_stays_deleted(
    database_url: str, start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis()
    urls = Urls(server.url, database_url)
    await upgrade(database_url)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        keep(server, tmp_path / "older.rdb")
        await drain(urls)
        await cache.delete("ada", "s1")
        await drain(urls)
        go_back(server, tmp_path / "older.rdb")
        with pytest.raises(SessionNotFoundError):
            await cache.get("ada", "s1")
        with pytest.raises(SessionNotFoundError):
            await made.get("a")
        await drain(urls)
        with pytest.raises(WriteLostError):  # the rows went with the tombstone: nothing shows any more that they were
            await cache.flush(60)
        await cache.flush(60)
        assert (await cache.list("ada")).items == []
    assert stored_values(urls.database, session("ada", "s1")) is None


async def test_r17_a_session_created_anew_since_the_copy_lives_its_new_life(
    database_url: str, start_redis: StartRedis, tmp_path: Path
) -> None:
    server = start_redis()
    urls = Urls(server.url, database_url)
    await upgrade(database_url)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 1, "old": 1})
        keep(server, tmp_path / "older.rdb")
        await drain(urls)
        await cache.delete("ada", "s1")
        anew = await cache.create("ada", session_id="s1", state={"a": 2})
        await drain(urls)
        go_back(server, tmp_path / "older.rdb")
        assert dict((await cache.get("ada", "s1")).state) == {"a": 2}
        with pytest.raises(SessionNotFoundError):
            await made.set("a", 9)
        await drain(urls)
        await anew.flush(60)
    assert stored_values(urls.database, session("ada", "s1")) == {"a": 2}
