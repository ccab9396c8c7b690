"""What somebody left in Redis in the place of one scope: it is named, and nobody else's flush waits for it (R10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from sessioncache import DamagedValueError, SessionCacheError
from sessioncache.hot.layout import Layout
from sessioncache.operations.reflush import remark_everything
from sessioncache.primitives.scopes import ScopeRef
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, dirty, drain, open_worker, raw, scope_key, session, stored_values, upgrade
from tests.servers import RedisServer

Damage = Callable[[redis.Redis, ScopeRef], object]
BAD = session("ada", "s1")
SOUND = [session("ada", "s0"), session("ada", "s2"), session("bob", "s3")]
MEMBER = BAD.member


def marks(scope: ScopeRef) -> str:
    """The name of the set of dirty fields."""
    return scope_key(scope).replace(":h:", ":d:")


def put_text(client: redis.Redis, name: str) -> None:
    """Put a text in the place of something else."""
    client.delete(name)
    client.set(name, "x")


DAMAGES: dict[str, Damage] = {
    "the hash is a text": lambda client, scope: put_text(client, scope_key(scope)),
    "the marks are a text": lambda client, scope: put_text(client, marks(scope)),
    "a value is cut short": lambda client, scope: client.hset(scope_key(scope), "=k", "abc"),
    "a number is none": lambda client, scope: client.hset(scope_key(scope), "z", "many"),
    "a name is garbled": lambda client, scope: client.hset(scope_key(scope), "s", b"\xff"),
    "a revision is cut short": lambda client, scope: client.hset(scope_key(scope), "c", "x"),
}


@pytest.fixture
async def server(start_redis: StartRedis) -> RedisServer:
    """One that comes back with all that it had, of which every hash is of an older incarnation then."""
    return start_redis("valkey", appendonly="yes", appendfsync="always")


@pytest.fixture
async def urls(server: RedisServer, sqlite_url: str) -> Urls:
    await upgrade(sqlite_url)
    return Urls(server.url, sqlite_url)


async def prepare(urls: Urls, damage: str) -> None:
    """Sessions that were written since they were flushed, of which one is damaged."""
    async with connect(urls) as cache:
        made = [await cache.create(scope.user, session_id=scope.session, state={"k": 1}) for scope in (BAD, *SOUND)]
        await drain(urls)
        for one in made:
            await one.set("k", 2)
    with raw(urls.redis) as client:
        DAMAGES[damage](client, BAD)


def stored(urls: Urls) -> list[object]:
    """What SQL has of the sound sessions."""
    return [(stored_values(urls.database, scope) or {}).get("k") for scope in SOUND]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_r10_all_other_scopes_are_flushed(
    server: RedisServer, urls: Urls, damage: str, *, restarts: bool
) -> None:
    await prepare(urls, damage)
    if restarts:
        server.restart()
    async with open_worker(urls) as worker:
        with pytest.raises(DamagedValueError, match=MEMBER):
            await worker.flush_once()
        assert stored(urls) == [2] * len(SOUND)
        assert dirty(urls.redis) == 1
        (told,) = worker._about()["ailing"]
        assert (told[1], "in Redis" in told[2]) == (MEMBER, True), "doctor names it by this"


@pytest.mark.parametrize("damage", DAMAGES)
async def test_r10_whoever_touches_it_is_told_which_it_is(server: RedisServer, urls: Urls, damage: str) -> None:
    await prepare(urls, damage)
    server.restart()
    async with connect(urls) as cache:
        with pytest.raises(DamagedValueError, match=MEMBER) as told:
            await cache.get("ada", "s1")
        assert told.value.key == ""
        assert MEMBER in told.value.scope
        with pytest.raises(SessionCacheError, match=MEMBER):
            await cache.create("ada", session_id="s1", state={"k": 3})
        assert (await cache.get("ada", "s2")).state["k"] == 2


async def test_a_script_that_met_damage_may_have_written_a_part(urls: Urls) -> None:
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"k": 0})
        with raw(urls.redis) as client:
            put_text(client, marks(BAD))
        with pytest.raises(SessionCacheError, match=f"may have been applied.*{MEMBER}"):
            await made.set("k", 1)


@pytest.mark.parametrize("damage", ["the hash is a text", "a value is cut short"])
async def test_without_its_keys_in_redis_it_is_as_sql_has_it(server: RedisServer, urls: Urls, damage: str) -> None:
    await prepare(urls, damage)
    server.restart()
    with raw(urls.redis) as client:
        client.delete(scope_key(BAD), marks(BAD))
    await drain(urls)
    assert dirty(urls.redis) == 0
    async with connect(urls) as cache:
        assert (await cache.get("ada", "s1")).state["k"] == 1


@pytest.mark.parametrize("damage", ["the hash is a text", "a value is cut short"])
async def test_r18_all_others_are_marked_where_sql_came_back_older(urls: Urls, damage: str) -> None:
    await prepare(urls, damage)
    async with open_worker(urls) as worker:
        await worker._check()
        done = await remark_everything(worker._tiers)
    assert done.scopes >= len(SOUND)
    with raw(urls.redis) as client:
        index = Layout("sessioncache", 256).control(SOUND[0].bucket)[:-3] + b"dirty"
        assert client.zscore(index, SOUND[0].member) is not None
