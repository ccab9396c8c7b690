"""The database away: hot sessions work on, cold ones fail clearly, and all is well once it is back (R18)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessioncache import DurableTierUnavailableError, FlushTimeoutError, OutcomeUnknownError
from tests.helpers import Urls, connect, drain, evict, session, start_worker, stored_values, upgrade
from tests.proxy import Proxy
from tests.servers import PostgreSQLServer

pytestmark = pytest.mark.alone


class Away:
    """PostgreSQL behind a proxy."""

    def __init__(self, proxy: Proxy, direct: Urls, proxied: Urls) -> None:
        self.proxy = proxy
        self.direct = direct
        self.proxied = proxied

    async def leave(self) -> None:
        """Refuse and cut all connections."""
        await self.proxy.refuse()
        self.proxy.cut()


@pytest.fixture
async def away(valkey_url: str, postgresql_server: PostgreSQLServer, postgresql_url: str) -> AsyncIterator[Away]:
    """Both tiers, the database reached through a proxy."""
    await upgrade(postgresql_url)
    name = postgresql_url.split("@/")[1].split("?")[0]
    async with Proxy(postgresql_server.folder / ".s.PGSQL.5432") as proxy:
        proxied = Urls(valkey_url, f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}")
        yield Away(proxy, Urls(valkey_url, postgresql_url), proxied)


async def test_hot_sessions_work_on_and_cold_ones_fail_clearly(away: Away) -> None:
    async with connect(away.proxied, timeout=1.5) as cache:
        await cache.create("ada", session_id="cold", state={"a": 1})
        await drain(away.direct)
        evict(away.direct.redis)
        hot = await cache.create("ada", session_id="hot", state={"a": 1, "user:u": 1, "app:p": 1})
        await away.leave()
        for call in (lambda: cache.get("ada", "cold"), lambda: cache.get("ada", "none"), lambda: cache.list("ada")):
            began = time.monotonic()
            with pytest.raises(DurableTierUnavailableError):
                await call()  # type: ignore[no-untyped-call]
            assert time.monotonic() - began < 2.5
        assert await hot.increment("a") == 2
        assert await hot.increment("user:u") == 2
        assert (await cache.get("ada", "hot")).state["a"] == 2
        assert await cache.delete("ada", "hot") is True
        await away.proxy.accept()
        assert (await cache.get("ada", "cold")).state["a"] == 1


async def test_nothing_is_created_whose_state_could_not_be_read(away: Away) -> None:
    async with connect(away.proxied, timeout=1.5) as cache:
        await cache.app_scope().set("p", 1)
        parent = await cache.create("ada", session_id="hot", state={"a": 1})
        await cache.create("bob", session_id="hot")
        await drain(away.direct)
        await parent.set("a", 2)
        evict(away.direct.redis)
        await away.leave()
        for call in (lambda: cache.create("ada"), parent.fork, lambda: cache.fork("ada", "hot")):
            with pytest.raises(DurableTierUnavailableError):
                await call()
        await away.proxy.accept()
        assert [one.id for one in (await cache.list("ada")).items] == ["hot"]
        made = await cache.create("ada")
        assert made.state == {"app:p": 1}
        await away.leave()
        assert (await cache.get("ada", made.id)).state == {"app:p": 1}
        assert (await cache.create("ada", state={"b": 1})).state == {"app:p": 1, "b": 1}
        assert (await made.fork()).state == {"app:p": 1}


async def test_a_fork_that_is_there_and_cannot_be_read_is_not_said_to_have_failed(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(away.proxied, timeout=1.5) as cache:
        await cache.app_scope().set("p", 1)
        await drain(away.direct)
        parent = await cache.create("ada", session_id="hot", state={"a": 1})
        fork_it = cache._tiers.forking.fork

        async def fork_and_evict(*args: Any, **kwargs: Any) -> Any:
            done = await fork_it(*args, **kwargs)
            evict(away.direct.redis)
            return done

        monkeypatch.setattr(cache._tiers.forking, "fork", fork_and_evict)
        await away.leave()
        with pytest.raises(OutcomeUnknownError, match="forked into 'sess_"):
            await parent.fork()
    async with connect(away.direct) as cache:
        (fork,) = [one for one in (await cache.list("ada")).items if one.forked_from == "hot"]
        assert (await cache.get("ada", fork.id)).state == {"a": 1, "app:p": 1}


async def test_a_process_that_starts_while_sql_is_away_can_use_hot_sessions(away: Away) -> None:
    async with connect(away.proxied) as cache:
        await cache.create("ada", session_id="hot", state={"a": 1, "user:u": 1, "app:p": 1})
    await away.leave()
    async with connect(away.proxied, timeout=1.5) as cache:
        found = await cache.get("ada", "hot")
        assert await found.increment("a") == 2
        with pytest.raises(DurableTierUnavailableError):
            await cache.get("ada", "none")
        await away.proxy.accept()
        assert await cache.delete("ada", "none") is False


async def test_a_database_that_does_not_answer_fails_cold_calls_in_bounded_time(away: Away) -> None:
    async with connect(away.proxied, timeout=1.5) as cache:
        hot = await cache.create("ada", session_id="hot", state={"a": 1, "user:u": 1, "app:p": 1})
        away.proxy.stall()
        began = time.monotonic()
        with pytest.raises(DurableTierUnavailableError):
            await cache.get("ada", "none")
        assert time.monotonic() - began < 15, "the time-out, and what psycopg takes to give up a connection"
        assert await hot.increment("a") == 2
        away.proxy.resume()
        assert await cache.delete("ada", "none") is False


async def test_a_process_that_starts_while_sql_does_not_answer_can_use_hot_sessions(away: Away) -> None:
    async with connect(away.proxied) as cache:
        await cache.create("ada", session_id="hot", state={"a": 1, "user:u": 1, "app:p": 1})
    away.proxy.stall()
    began = time.monotonic()
    async with connect(away.proxied, timeout=1.5) as cache:
        found = await cache.get("ada", "hot")
        assert await found.increment("a") == 2
        assert time.monotonic() - began < 5
        away.proxy.resume()


async def test_what_was_written_meanwhile_is_flushed_once_the_database_is_back(away: Away) -> None:
    with start_worker(away.proxied, "--flush-delay", "0.05"):
        async with connect(away.proxied) as cache:
            made = await cache.create("ada", session_id="s1")
            await made.flush(10)
            await away.leave()
            await made.set("a", 1)
            with pytest.raises(FlushTimeoutError):
                await made.flush(1)
            await away.proxy.accept()
            await made.flush(15)
    assert stored_values(away.direct.database, session("ada", "s1")) == {"a": 1}
