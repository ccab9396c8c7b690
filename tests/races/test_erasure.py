"""Erasing a user while others write, and while a worker is stopped with the user's dirt in its hands."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy import event

import sessioncache.hot.tokens
from sessioncache import (
    DurableTierUnavailableError,
    Session,
    SessionCache,
    SessionExistsError,
    SessionNotFoundError,
    StaleSessionError,
)
from sessioncache.durable import transactions
from sessioncache.durable.engine import create_engine
from sessioncache.hot.scripts import Script
from sessioncache.operations.erase_user import ErasureReport
from tests.helpers import (
    Process,
    Stall,
    Urls,
    connect,
    dirty,
    drain,
    evict,
    execute,
    fetch,
    head_row,
    open_worker,
    session,
    start_stopping_worker,
    stop_worker,
    stored_values,
    upgrade,
    user,
)
from tests.proxy import Proxy
from tests.servers import PostgreSQLServer
from tests.traces import ADA, TRACE, named, neighbour, plant, traces
from tests.waiting import wait_until, wait_until_async

EXPECTED = (SessionNotFoundError, StaleSessionError, SessionExistsError)
Attack = Callable[[SessionCache, Session, int], Awaitable[object]]


async def recreate(cache: SessionCache, _: Session, number: int) -> None:
    """Create sessions that are deleted and created again."""
    name = named(f"again {number % 3}")
    made, _created = await cache.get_or_create(ADA, name, state={named("key"): number, named("user:key"): 1})
    await made.namespace(named("tools")).set(named("key"), named("value"))
    if number % 2:
        await cache.delete(ADA, name)


async def fork(cache: SessionCache, found: Session, number: int) -> None:
    """Fork into ids of its own and of others."""
    await found.fork(new_id=named(f"fork {number}"))


async def lease(_: SessionCache, found: Session, number: int) -> None:
    """Write under a lease."""
    async with found.lease(wait=1) as held:
        await held.update({named("held"): number, "temp:held": named("temp")})


ATTACKS: dict[str, Attack] = {
    "set": lambda _, found, number: found.update({named("key"): number, f"user:{named('key')}": named("value")}),
    "append": lambda _, found, number: found.append("list", named("item")),
    "temp": lambda _, found, number: found.set(f"temp:{named('temp')}", named("value")),
    "namespace": lambda _, found, number: found.namespace(named(f"n{number % 5}")).set(named("key"), named("value")),
    "touch": lambda _, found, number: found.rename(named(f"title {number}")),
    "user scope": lambda cache, _, number: cache.user_scope(ADA).append(named("list"), named("item")),
    "read": lambda cache, _, number: cache.user_scope(ADA).get(named("list")),
    "create": lambda cache, _, number: cache.create(ADA, state={named("key"): named("value")}),
    "recreate": recreate,
    "fork": fork,
    "lease": lease,
}


class Storm:
    """Writers that go on whatever they are told, until they are stopped."""

    def __init__(self, cache: SessionCache, handles: Sequence[Session]) -> None:
        self._cache, self._handles = cache, handles
        self._over = False
        self.written = dict.fromkeys(ATTACKS, 0)
        self.refused = dict.fromkeys(ATTACKS, 0)

    async def _attack(self, name: str) -> None:
        for number in count():
            if self._over:
                return
            try:
                await ATTACKS[name](self._cache, self._handles[number % len(self._handles)], number)
                self.written[name] += 1
            except EXPECTED:
                self.refused[name] += 1

    @asynccontextmanager
    async def raging(self) -> AsyncIterator[None]:
        """Each writer has written before the block, and was refused before its end (who only reads never is)."""
        tasks = [asyncio.ensure_future(self._attack(name)) for name in ATTACKS]
        try:
            await wait_until_async(lambda: min(self.written.values()) > 3, 30, "every writer has written")
            yield
            wrong = {name: number for name, number in self.refused.items() if name != "read"}
            await wait_until_async(lambda: all(self.refused[n] > wrong[n] + 3 for n in wrong), 30, "all are refused")
        finally:
            self._over = True
            await asyncio.gather(*tasks)


async def test_writers_that_race_with_the_erasure_leave_no_trace(urls: Urls) -> None:
    async with connect(urls, timeout=20) as cache, connect(urls, timeout=20) as eraser:
        other = await cache.create(neighbour(), session_id="s")
        handles = [await plant(cache, f"s{number}") for number in range(4)]
        await drain(urls)
        storm = Storm(cache, handles)
        async with open_worker(urls, flush_delay=0.02, lease=5) as worker:
            running = asyncio.ensure_future(worker.run())
            async with storm.raging():
                await other.update({"a": 1, "user:u": 1})
                report = await eraser.erase_user(ADA)
            assert report.sessions >= 5
            assert traces(urls, TRACE) == []
            await other.flush(60)
            assert traces(urls, TRACE) == [], "nor does the worker bring any back"
            worker.stop()
            await running
        assert (await cache.list(ADA)).items == []
        assert await cache.erase_user(ADA) == ErasureReport(0, 0)
    assert stored_values(urls.database, session(neighbour(), "s")) == {"a": 1}
    assert stored_values(urls.database, user(neighbour())) == {"u": 1}
    await drain(urls)
    assert traces(urls, TRACE) == []
    assert dirty(urls.redis) == 0


@pytest.mark.parametrize("known", [False, True], ids=["new in SQL", "in SQL already"])
@pytest.mark.parametrize("point", ["claimed", "read", "committed"])
async def test_a_worker_that_was_stopped_with_the_users_dirt_brings_nothing_back(
    urls: Urls, point: str, known: bool
) -> None:
    async with connect(urls) as cache:
        other = await cache.create(neighbour(), session_id="s")
        if known:
            made = await plant(cache, "s")
            await drain(urls)
            await made.set("more", named("value"))
            await made.namespace(named("tools")).set("more", named("value"))
            await cache.user_scope(ADA).set(named("more"), named("value"))
        else:
            await plant(cache, "s")
        await other.update({"a": 1, "user:u": 1})
        with start_stopping_worker(urls, point, "--flush-delay", "0.05", "--lease", "30") as worker:
            await asyncio.to_thread(worker.wait_until_stopped)
            report = await cache.erase_user(ADA)
            assert report == ErasureReport(sessions=1, entries=10 if known else 7)
            assert traces(urls, TRACE) == []
            await asyncio.to_thread(go_on, urls, worker)
        assert traces(urls, TRACE) == []
        await drain(urls)
        assert (await cache.list(ADA)).items == []
    assert traces(urls, TRACE) == []
    assert dirty(urls.redis) == 0
    assert stored_values(urls.database, session(ADA, named("s"))) is None
    assert stored_values(urls.database, user(ADA)) == {}
    assert stored_values(urls.database, session(neighbour(), "s")) == {"a": 1}
    assert stored_values(urls.database, user(neighbour())) == {"u": 1}


def go_on(urls: Urls, worker: Process) -> None:
    """Let a stopped worker finish what it has in its hands, and end."""
    worker.send(signal.SIGCONT)
    wait_until(lambda: dirty(urls.redis) == 0, 20, "the neighbour is flushed")
    stop_worker(urls, worker)


async def test_a_loader_that_stalled_before_the_erasure_installs_nothing_after_it(
    urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessioncache.hot.tokens, "_EVERY", 3_600)  # as in a process that stands still
    async with connect(urls, timeout=30) as cache, connect(urls, timeout=30) as eraser:
        await plant(cache, "s")
        await drain(urls)
        evict(urls.redis)
        stall = Stall(cache._tiers.hot, "install")
        reads = [cache.get(ADA, named("s")), cache.user_scope(ADA).get(named("s"))]
        reading = [asyncio.ensure_future(read) for read in reads]
        await wait_until_async(stall.reached.is_set, 10, "the reader has read SQL")
        assert (await eraser.erase_user(ADA)).sessions == 1
        stall.release.set()
        found = await asyncio.gather(*reading, return_exceptions=True)
        assert isinstance(found[0], SessionNotFoundError)
        assert found[1] is None
    assert traces(urls, TRACE) == []


MANY = {named(f"k{number}"): named("value") for number in range(2_500)}
"""More keys than one script takes."""


@pytest.mark.parametrize("script", ["create", "fork"])
async def test_a_large_birth_between_its_steps_leaves_no_trace(
    urls: Urls, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Its process may have been killed there."""
    async with connect(urls, timeout=30) as cache, connect(urls) as eraser:
        parent = await cache.create(ADA, session_id="parent")
        for name in ("m", "n"):
            await parent.namespace(named(name)).update(dict(list(MANY.items())[:1_500]))
        call_many = cache._tiers.link.call_many
        found: list[list[str]] = []

        async def erasing(sent: Script, calls: Sequence[Any]) -> list[Any]:
            replies: list[Any] = await call_many(sent, calls)
            if sent.name == "gather" and not found:
                assert (await eraser.erase_user(ADA)).sessions == 1
                found.append(traces(urls, TRACE))
            return replies

        monkeypatch.setattr(cache._tiers.link, "call_many", erasing)
        work = cache.create(ADA, session_id="large", state=MANY) if script == "create" else parent.fork(new_id="large")
        with pytest.raises(StaleSessionError):
            await work
        assert found == [[]]
    assert traces(urls, TRACE) == []


async def test_a_large_namespace_that_is_being_loaded_leaves_no_trace(
    urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(urls, timeout=30) as cache, connect(urls) as eraser:
        made = await cache.create(ADA, session_id="s")
        for part in (list(MANY.items())[:1_250], list(MANY.items())[1_250:]):
            await made.namespace("n").update(dict(part))
        await drain(urls)
        evict(urls.redis)
        space, stage, found = (await cache.get(ADA, "s")).namespace("n"), cache._tiers.hot.stage, []

        async def erasing(*args: Any, **kind: Any) -> None:
            await stage(*args, **kind)
            assert (await eraser.erase_user(ADA)).sessions == 1
            found.append(traces(urls, TRACE))

        monkeypatch.setattr(cache._tiers.hot, "stage", erasing)
        with pytest.raises(SessionNotFoundError):
            await space.items()
        assert found == [[]]
    assert traces(urls, TRACE) == []


# ---- SQL


async def test_with_the_database_away_the_erasure_fails_and_goes_on_when_called_again(
    valkey_url: str, postgresql_server: PostgreSQLServer, postgresql_url: str
) -> None:
    await upgrade(postgresql_url)
    direct = Urls(valkey_url, postgresql_url)
    name = postgresql_url.split("@/")[1].split("?")[0]
    async with Proxy(postgresql_server.folder / ".s.PGSQL.5432") as proxy:
        proxied = Urls(valkey_url, f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}")
        async with connect(proxied, timeout=1) as cache:
            await plant(cache, "cold")
            await drain(direct)
            evict(direct.redis)
            await plant(cache, "hot")
            await proxy.refuse()
            proxy.cut()
            with pytest.raises(DurableTierUnavailableError):
                await cache.erase_user(ADA)
            assert traces(direct, TRACE)
            await proxy.accept()
            assert (await cache.erase_user(ADA)).sessions == 2
        assert traces(direct, TRACE) == []
        await drain(direct)
        assert traces(direct, TRACE) == []


async def test_an_erasure_that_broke_off_before_the_commit_is_finished_by_the_next(urls: Urls) -> None:
    async with connect(urls) as cache:
        await plant(cache, "s")
        await drain(urls)
        erase = cache._tiers.durable.erase

        async def fail(*_: object) -> None:
            raise DurableTierUnavailableError("away")

        cache._tiers.durable.erase = fail
        with pytest.raises(DurableTierUnavailableError):
            await cache.erase_user(ADA)
        await drain(urls)
        evict(urls.redis)
        cache._tiers.durable.erase = erase
        await cache.erase_user(ADA)
    assert traces(urls, TRACE) == []


async def test_a_head_that_a_worker_wrote_during_the_erasure_is_blanked(urls: Urls) -> None:
    async with connect(urls) as cache:
        await plant(cache, "s")
        erase = cache._tiers.durable.erase

        async def flushed_before(*args: Any) -> None:
            await drain(urls)
            await erase(*args)

        cache._tiers.durable.erase = flushed_before
        await cache.erase_user(ADA)
    assert traces(urls, TRACE) == []


async def test_an_erasure_under_a_fence_that_moved_begins_again(urls: Urls) -> None:
    async with connect(urls) as cache:
        await plant(cache, "s")
        await drain(urls)
        erase, calls = cache._tiers.durable.erase, 0

        async def moved_before(*args: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                execute(urls.database, "UPDATE sessioncache_fence SET incarnation = 'of another Redis'")
            await erase(*args)

        cache._tiers.durable.erase = moved_before
        report = await cache.erase_user(ADA)
        assert (calls, report) == (3, ErasureReport(sessions=1, entries=7)), "refused, the session, the user's scope"
    assert traces(urls, TRACE) == []


async def test_a_redis_that_forgets_in_the_middle_does_not_bring_the_user_back(
    urls: Urls, flushall: Callable[[], None]
) -> None:
    async with connect(urls) as cache:
        await plant(cache, "s")
        await drain(urls)
        delete = cache._tiers.hot.delete

        async def forget(*args: Any, **named_: Any) -> Any:
            deleted = await delete(*args, **named_)
            flushall()
            cache._tiers.hot.delete = delete
            return deleted

        cache._tiers.hot.delete = forget
        await cache.erase_user(ADA)
        assert traces(urls, TRACE) == []
        assert head_row(urls.database, session(ADA, named("s"))) is not None
        assert stored_values(urls.database, session(ADA, named("s"))) is None


@pytest.mark.parametrize("most", [transactions.VACUUM_BYTES, 0])
async def test_a_file_of_sqlite_that_is_not_too_large_is_rebuilt(
    valkey_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    await upgrade(sqlite_url)
    urls = Urls(valkey_url, sqlite_url)
    monkeypatch.setattr(transactions, "VACUUM_BYTES", most)
    async with connect(urls) as cache:
        made = await plant(cache, "s")
        await made.update({f"k{number}": named("value") * 1_000 for number in range(20)})
        await drain(urls)
        await cache.erase_user(ADA)
    free = fetch(sqlite_url, "PRAGMA freelist_count")[0][0]
    assert (free == 0) is (most > 0)
    assert traces(urls, TRACE) == []


async def test_sqlite_overwrites_what_it_drops_also_where_it_is_built_not_to(
    valkey_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "VACUUM_BYTES", 0)
    await upgrade(sqlite_url)
    urls = Urls(valkey_url, sqlite_url)
    engine = create_engine(sqlite_url)
    event.listen(engine.sync_engine, "connect", lambda raw, _: raw.execute("PRAGMA secure_delete = OFF"))
    client = Redis.from_url(valkey_url)
    cache = SessionCache(client, engine, app="app")
    made = [await plant(cache, f"s{number}") for number in range(8)]
    for size in (100, 3_000, 60_000):
        for one in made:
            await one.update({f"k{number}": f"{named('value')}" * (size // 20) for number in range(5)})
        async with open_worker(urls) as worker:
            worker._tiers.durable.engine, own = engine, worker._tiers.durable.engine
            await worker.flush_once()
            worker._tiers.durable.engine = own
    await cache.erase_user(ADA)
    assert traces(urls, TRACE) == []
    await engine.dispose()
    await cache.aclose()
    await client.aclose()


async def test_who_reads_sqlite_for_long_holds_the_erasure_up_and_is_named(
    valkey_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upgrade(sqlite_url)
    urls = Urls(valkey_url, sqlite_url)
    async with connect(urls) as cache:
        await plant(cache, "s")
        await drain(urls)
        reader = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sessioncache_state").fetchone()
        monkeypatch.setattr(transactions, "BUSY_TIMEOUT", 0.05)
        with pytest.raises(DurableTierUnavailableError, match="log"):
            await cache.erase_user(ADA)
        reader.close()
        await cache.erase_user(ADA)
    assert traces(urls, TRACE) == []
