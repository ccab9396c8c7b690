"""What is checked before the first call: schema, settings, tiers that belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from sessioncache import (
    ConfigurationError,
    HotTierUnavailableError,
    SchemaVersionError,
    SessionCache,
    SessionCacheError,
)
from sessioncache.cli.main import main
from sessioncache.durable.engine import create_engine
from sessioncache.hot.incarnations import Current, Incarnations
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, drain, execute, open_worker, session, start_worker, stored_values, upgrade
from tests.waiting import stretched


async def test_a_database_without_schema_is_refused(valkey_url: str, database_url: str) -> None:
    with pytest.raises(SchemaVersionError) as told:
        await connect(Urls(valkey_url, database_url))
    assert told.value.found is None
    assert "db upgrade" in str(told.value)


async def test_a_database_of_another_version_is_refused(urls: Urls) -> None:
    execute(urls.database, "UPDATE sessioncache_alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaVersionError) as told:
        await connect(urls)
    assert told.value.found == "9999"


async def test_the_constructor_checks_at_the_first_call(valkey_url: str, sqlite_url: str) -> None:
    client, engine = Redis.from_url(valkey_url), create_engine(sqlite_url)
    cache = SessionCache(client, engine, app="app", timeout=stretched(5.0))
    with pytest.raises(SchemaVersionError):
        await cache.create("ada")
    await upgrade(sqlite_url)
    await cache.create("ada")
    await cache.aclose()
    await client.aclose()
    await engine.dispose()


async def test_another_number_of_buckets_is_refused_by_either_tier(urls: Urls, start_redis: StartRedis) -> None:
    async with connect(urls, buckets=16):
        pass
    with pytest.raises(ConfigurationError, match=r"Redis.*buckets is 16 there and 256 here"):
        await connect(urls)
    with pytest.raises(ConfigurationError, match=r"database.*buckets is 16 there and 256 here"):
        await connect(Urls(start_redis().url, urls.database))
    async with connect(Urls(start_redis().url, urls.database), buckets=16):
        pass


async def test_an_empty_redis_that_takes_an_installation_over_is_told(
    urls: Urls, start_redis: StartRedis, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s")
    async with connect(urls):
        pass
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
    other = Urls(start_redis().url, urls.database)
    async with connect(other), connect(other):
        pass
    (told,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert told.startswith("an empty Redis takes over the installation of 2 buckets: ")


async def test_a_worker_with_another_number_of_buckets_is_refused(urls: Urls) -> None:
    async with connect(urls, buckets=16):
        pass
    with start_worker(urls, "--once") as worker:
        code, _, err = worker.finish()
    assert code == 2
    assert "buckets" in err


async def test_a_redis_of_another_database_is_refused(urls: Urls, sqlite_url: str, tmp_path: object) -> None:
    async with connect(urls):
        pass
    other = f"sqlite:///{tmp_path}/other.db"
    await upgrade(other)
    async with connect(Urls(urls.redis, other), prefix="elsewhere"):
        pass
    with pytest.raises(ConfigurationError, match="belongs to another database"):
        await connect(Urls(urls.redis, other))


async def new_database(tmp_path: Path) -> str:
    """A database with our schema and no record of an installation."""
    other = f"sqlite:///{tmp_path}/other.db"
    await upgrade(other)
    return other


async def test_r18_a_database_without_a_record_is_refused_by_a_redis_in_use(urls: Urls, tmp_path: Path) -> None:
    async with connect(urls) as cache:
        await (await cache.create("ada", session_id="s1")).set("k", 1)
    strange = Urls(urls.redis, await new_database(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no record of an installation.*db adopt"):
        await connect(strange)
    with start_worker(strange, "--once") as worker:
        code, _, err = worker.finish()
    assert (code, "db adopt" in err) == (2, True)
    assert await drain(urls) > 0, "nothing went elsewhere"
    assert stored_values(urls.database, session("ada", "s1")) == {"k": 1}


async def test_r18_a_database_that_is_adopted_has_what_is_hot_and_the_other_one_is_told(
    urls: Urls, tmp_path: Path
) -> None:
    strange = Urls(urls.redis, await new_database(tmp_path))
    async with connect(urls) as cache:
        early = await cache.create("ada", session_id="s1", state={"k": 1})
        await drain(urls)
        await early.set("late", 2)
        assert await asyncio.to_thread(main, ["db", "adopt", *_named(strange)]) == 0
        await drain(strange)
        with pytest.raises(SessionCacheError):
            await early.flush(1)
        for call in (early.get("k"), early.set("k", 2), cache.create("ada")):
            with pytest.raises(ConfigurationError, match="belongs to another database"):
                await call
    async with connect(strange) as cache:
        assert await (await cache.get("ada", "s1")).get("k") == 1
    assert stored_values(strange.database, session("ada", "s1")) == {"k": 1, "late": 2}
    for stranger in (urls, strange):
        with pytest.raises(ConfigurationError, match="belongs to another database"):
            await connect(urls)
        assert await asyncio.to_thread(main, ["db", "adopt", *_named(stranger)]) == 2, "it has an installation"
    async with connect(strange):
        pass  # and still belongs to it


def _named(urls: Urls) -> list[str]:
    return ["--redis", urls.redis, "--database", urls.database]


@pytest.mark.parametrize("kept", [(), ("layout",), ("layout", "fence")], ids=lambda kept: ",".join(kept) or "none")
async def test_r18_a_database_that_was_exchanged_behind_its_url_is_noticed(urls: Urls, kept: tuple[str, ...]) -> None:
    """The record and the fences of another installation may be there."""
    async with connect(urls, timeout=2) as cache, open_worker(urls) as worker:
        early = await cache.create("ada", session_id="s1", state={"k": 1})
        for table in ("layout", "fence", "incarnation", "session", "state", "user_scope", "app_scope"):
            if table not in kept:
                execute(urls.database, f"DELETE FROM sessioncache_{table}")
        if "layout" in kept:
            strange = "UPDATE sessioncache_layout SET value = '0123456789abcdef' WHERE name = 'installation'"
            execute(urls.database, strange)
        if "fence" in kept:
            execute(urls.database, "UPDATE sessioncache_fence SET incarnation = 'another.012345'")
        with pytest.raises(ConfigurationError, match="another database"):
            await worker.flush_once()
        assert stored_values(urls.database, session("ada", "s1")) is None
        with pytest.raises(SessionCacheError):
            await early.flush(1)
        with pytest.raises(ConfigurationError, match="belongs to another database"):
            await cache.get("ada", "cold")


async def test_a_stray_row_in_an_empty_record_is_no_installation(urls: Urls) -> None:
    execute(urls.database, "INSERT INTO sessioncache_layout (name, value) VALUES ('last_probe', '')")
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
    async with connect(urls) as cache:
        assert (await cache.get("ada", "s1")).id == "s1"


async def test_r17_two_redis_servers_on_one_database_are_told(urls: Urls, start_redis: StartRedis) -> None:
    other = Urls(start_redis().url, urls.database)
    async with connect(urls) as one, connect(other) as two:
        await one.create("ada", session_id="s1")
        await drain(urls)

        async def fight() -> None:
            for cache, where in ((two, other), (one, urls)) * 3:
                await (await cache.get("ada", "s1")).set("k", 2)
                await drain(where)

        with pytest.raises(HotTierUnavailableError, match="another Redis works with this database"):
            await fight()


async def test_installations_with_prefixes_of_their_own_share_a_redis(urls: Urls, tmp_path: object) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    await upgrade(other)
    async with connect(urls) as one, connect(Urls(urls.redis, other), prefix="elsewhere") as two:
        await one.create("ada", session_id="s1", state={"a": 1})
        await two.create("ada", session_id="s1", state={"a": 2})
        assert (await one.get("ada", "s1")).state["a"] == 1
        assert (await two.get("ada", "s1")).state["a"] == 2


@pytest.mark.parametrize("setting", [{"prefix": "elsewhere"}, {"buckets": 16}], ids=str)
async def test_the_embedded_default_is_one_installation(setting: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="servers of your own"):
        await SessionCache.connect(app="app", data_dir=str(tmp_path / "data"), **setting)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("given", [("http://localhost", "sqlite:///x"), ("redis://localhost", "oracle://h/x")])
async def test_urls_of_other_kinds_are_refused(given: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        await SessionCache.connect(*given, app="app")


async def test_no_error_shows_a_password(start_redis: StartRedis, sqlite_url: str) -> None:
    await upgrade(sqlite_url)
    server = start_redis(requirepass="s3cret", tcp=True)
    wrong = f"redis://:hunter2@127.0.0.1:{server.port}/0"
    with pytest.raises(ConfigurationError) as told:
        await connect(Urls(wrong, sqlite_url))
    assert "hunter2" not in repr(told.value)
    async with connect(Urls(server.url, sqlite_url)) as cache:
        await cache.create("ada")


async def test_r18_who_works_on_reclaims_a_redis_that_forgot_everything(urls: Urls, tmp_path: Path) -> None:
    stranger = f"sqlite:///{tmp_path}/stranger.db"
    await upgrade(stranger)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
        async with Redis.from_url(urls.redis) as client:
            await client.flushall()
        await cache.create("ada", session_id="s2")
        with pytest.raises(ConfigurationError, match="in use with another database"):
            await connect(Urls(urls.redis, stranger))
        async with connect(urls) as newcomer:
            assert (await newcomer.get("ada", "s2")).id == "s2"


async def test_r18_who_works_on_is_told_that_others_set_up_a_redis_that_forgot_everything(
    urls: Urls, tmp_path: Path
) -> None:
    stranger = f"sqlite:///{tmp_path}/stranger.db"
    await upgrade(stranger)
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
        async with Redis.from_url(urls.redis) as client:
            await client.flushall()
        async with connect(Urls(urls.redis, stranger)) as other:
            with pytest.raises(ConfigurationError, match="belongs to another database"):
                await cache.create("ada", session_id="s2")
            async with Redis.from_url(urls.redis) as client:
                control = cache._tiers.layout.control(session("ada", "s2").bucket)
                assert await client.hget(control, "incarnation") is None, "nothing of ours is left there"
            await other.create("ada", session_id="s3")


async def test_r18_a_redis_that_forgets_everything_while_it_is_registered_is_reclaimed_too(
    urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = f"sqlite:///{tmp_path}/stranger.db"
    await upgrade(stranger)
    async with connect(urls) as cache, Redis.from_url(urls.redis) as client:
        made = await cache.create("ada", session_id="s1", state={"a": 1})
        await drain(urls)
        incarnations: Incarnations = cache._tiers.fencing._incarnations
        current = incarnations.current

        async def forgotten_before(
            buckets: Sequence[int], unusable: Mapping[int, str], *, replaced: bool = False
        ) -> dict[int, Current]:
            monkeypatch.undo()
            await client.flushall()
            return await current(buckets, unusable, replaced=replaced)

        monkeypatch.setattr(incarnations, "current", forgotten_before)
        await client.flushall()
        await made.set("a", 2)
        with pytest.raises(ConfigurationError, match="in use with another database"):
            await connect(Urls(urls.redis, stranger))
        async with connect(urls) as newcomer:
            assert (await newcomer.get("ada", "s1")).state["a"] == 2
