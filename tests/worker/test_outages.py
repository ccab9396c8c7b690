"""R10: an outage is no refusal, whatever it hits and however long it lasts; one scope holds nobody else up."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest
from sessioncache_worker import FlushWorker

from sessioncache import SessionCache
from sessioncache.durable import statement_sizes
from sessioncache.durable.tier import FlushResult
from sessioncache.health.examination import examine, find_targets
from sessioncache.health.findings import Level
from sessioncache.primitives.entries import Dirt
from sessioncache.primitives.outages import SQL
from sessioncache.settings import CacheSettings
from tests.helpers import Urls, connect, execute, fetch, open_worker, raw, session, stored_values
from tests.races.locks import locked_row
from tests.waiting import wait_until_async
from tests.worker.poison import OUTAGES, fail_at_poison

FAST = {"flush_delay": 0.05, "lease": 2.0, "sweep": 0.5}
ROLE = "sessioncache_test_worker"


@asynccontextmanager
async def running(urls: Urls, **settings: Any) -> AsyncIterator[FlushWorker]:
    """A worker of this process at work."""
    async with open_worker(urls, **(FAST | settings)) as worker:
        task = asyncio.ensure_future(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task


@pytest.fixture
def least(pg_urls: Urls) -> Urls:
    """The same for a role that may read and write our tables, and no more."""
    with suppress(psycopg.errors.UndefinedObject):
        execute(pg_urls.database, f"DROP OWNED BY {ROLE}")
    execute(pg_urls.database, f"DROP ROLE IF EXISTS {ROLE}")
    execute(pg_urls.database, f"CREATE ROLE {ROLE} LOGIN")
    execute(pg_urls.database, f"GRANT USAGE ON SCHEMA public TO {ROLE}")
    execute(pg_urls.database, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE}")
    return Urls(pg_urls.redis, pg_urls.database.replace("postgres@", f"{ROLE}@"))


async def found(urls: Urls) -> dict[str, str]:
    """What `doctor` finds bad."""
    report = await examine(find_targets(urls.redis, urls.database, "."), CacheSettings())
    return {one.name: one.found for one in report.findings if one.level is Level.BAD}


async def create(cache: SessionCache, number: int, name: str = "good") -> None:
    """Sessions with one key each."""
    await asyncio.gather(*(cache.create("ada", session_id=f"{name}{n}", state={"a": n}) for n in range(number)))


def durable(urls: Urls) -> int:
    """Rows of key `a` in SQL."""
    return int(fetch(urls.database, "SELECT count(*) FROM sessioncache_state WHERE key = 'a'")[0][0])


def letters(urls: Urls) -> list[bytes]:
    """Letters and suspects in Redis."""
    with raw(urls.redis) as client:
        return list(client.scan_iter("*:dead", count=1000))


async def test_r10_a_right_that_is_taken_away_for_a_while_makes_no_letter(pg_urls: Urls, least: Urls) -> None:
    async with connect(pg_urls) as cache, running(least, max_attempts=1) as worker:
        await create(cache, 1, "first")
        await cache.flush(20)
        execute(pg_urls.database, f"REVOKE INSERT ON sessioncache_state FROM {ROLE}")
        await create(cache, 20)
        await wait_until_async(lambda: SQL in worker._outages, 30, "the worker has seen the outage")
        assert "lacks INSERT on sessioncache_state" in worker._outages.causes()[SQL]
        await worker._tiers.backlog.beat(worker.name, json.dumps(worker._about()))
        told = await found(least)
        assert told["rights"].endswith("lacks: INSERT on sessioncache_state")
        assert "the SQL database is away: " in told["flushing"]
        assert letters(pg_urls) == []
        execute(pg_urls.database, f"GRANT INSERT ON sessioncache_state TO {ROLE}")
        await cache.flush(60)
    assert durable(pg_urls) == 21
    assert letters(pg_urls) == []


@pytest.mark.parametrize("how", OUTAGES)
async def test_r10_one_scope_that_meets_an_outage_is_set_apart_told_and_no_letter(pg_urls: Urls, how: str) -> None:
    fail_at_poison(pg_urls.database, how)
    async with connect(pg_urls) as cache:
        await create(cache, 10)
        bad = await cache.create("ada", session_id="bad", state={"poison": 1})
        async with running(pg_urls) as worker:
            await wait_until_async(lambda: durable(pg_urls) == 10, 40, "the good ones are durable")
            await wait_until_async(lambda: worker.flusher.isolation.ailing(), 40, "the bad one is told")
            assert list(worker.flusher.isolation.ailing()) == [(bad_scope.bucket, bad_scope.member)]
            await worker._tiers.backlog.beat(worker.name, json.dumps(worker._about()))
            assert "session 'bad' of user 'ada' in app 'app' cannot be flushed: " in (await found(pg_urls))["flushing"]
            await create(cache, 10, "later")
            await wait_until_async(lambda: durable(pg_urls) == 20, 40, "others are flushed all the while")
            assert letters(pg_urls) == []
            execute(pg_urls.database, "DROP TRIGGER no_poison ON sessioncache_state")
            await bad.flush(60)
            assert worker.flusher.isolation.ailing() == {}


bad_scope = session("ada", "bad")
_TRIGGER = """CREATE FUNCTION bad_head() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.session_id = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$"""


async def test_r10_a_head_that_a_trigger_fails_at_holds_nobody_up(pg_urls: Urls) -> None:
    execute(pg_urls.database, _TRIGGER)
    on = "BEFORE INSERT OR UPDATE ON sessioncache_session FOR EACH ROW EXECUTE FUNCTION bad_head()"
    execute(pg_urls.database, f"CREATE TRIGGER bad_head {on}")
    async with connect(pg_urls) as cache:
        await create(cache, 30)
        bad = await cache.create("ada", session_id="bad", state={"b": 1})
        async with running(pg_urls) as worker:
            await wait_until_async(lambda: durable(pg_urls) == 30, 40, "the good ones are durable")
            await wait_until_async(lambda: worker.flusher.isolation.ailing(), 40, "the bad one is told")
            assert letters(pg_urls) == []
            execute(pg_urls.database, "DROP TRIGGER bad_head ON sessioncache_session")
            await bad.flush(60)
    assert stored_values(pg_urls.database, bad_scope) == {"b": 1}


async def test_r10_a_row_that_others_lock_holds_nobody_up(pg_urls: Urls) -> None:
    async with connect(pg_urls) as cache, running(pg_urls) as worker:
        held = await cache.create("ada", session_id="s1", state={"a": 0})
        await cache.flush(20)
        with locked_row(pg_urls):
            await held.set("a", 1)
            await create(cache, 30)
            await wait_until_async(lambda: durable(pg_urls) == 31, 40, "the others are durable")
            await wait_until_async(lambda: worker.flusher.isolation.ailing(), 40, "the locked one is told")
        await cache.flush(60)
        assert letters(pg_urls) == []


async def test_r10_a_helper_that_fails_is_told_once_started_again_and_seen(
    pg_urls: Urls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessioncache_worker.background_tasks._FIRST_PAUSE", 0.01)
    well = "sessioncache_worker.background_tasks._WELL"
    monkeypatch.setattr(well, 3_600.0)
    async with open_worker(pg_urls, **(FAST | {"sweep": 0.05})) as worker:
        dirty, failures = worker._sweeper.dirty, 0

        async def failing(buckets: Any) -> list[int]:
            nonlocal failures
            failures += 1
            if failures == 3:
                monkeypatch.setattr(well, 0.2)  # for the next start
            if failures <= 3:
                raise ZeroDivisionError("secret")
            return await dirty(buckets)

        worker._sweeper.dirty = failing  # type: ignore[method-assign]
        with caplog.at_level(logging.WARNING, "sessioncache_worker"):
            task = asyncio.ensure_future(worker.run())
            await wait_until_async(lambda: failures == 2, 20, "it was started again")
            assert worker._about()["failing"] == {"sweep": "ZeroDivisionError"}
            await wait_until_async(lambda: failures > 3 and "failing" not in worker._about(), 20, "it is well again")
            worker.stop()
            await task
    told = [record.getMessage() for record in caplog.records if "sweep" in record.getMessage()]
    assert [("failed" in one, "works again" in one) for one in told] == [(True, False), (False, True)]
    assert "secret" not in caplog.text


_SLOW = """CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF starts_with(NEW.key, 'slow') THEN PERFORM pg_sleep(0.004); END IF; RETURN NEW; END $$"""


@pytest.mark.parametrize("known", [statement_sizes._MOST, 50])
async def test_r10_a_scope_that_takes_longer_than_a_statement_may_is_flushed_beside_the_others(
    pg_urls: Urls, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Whether it is known by then how many rows a statement may have, or not."""
    monkeypatch.setattr(statement_sizes, "_MOST", known)
    execute(pg_urls.database, _SLOW)
    on = "BEFORE INSERT OR UPDATE ON sessioncache_state FOR EACH ROW EXECUTE FUNCTION slow()"
    execute(pg_urls.database, f"CREATE TRIGGER slow {on}")
    async with connect(pg_urls) as cache, running(pg_urls, batch_rows=100) as worker:
        large = await cache.create("ada", session_id="large", state={f"slow{n}": n for n in range(800)})
        await wait_until_async(lambda: worker.flusher.isolation.has(LARGE), 40, "the large one is under way")
        await create(cache, 10)
        await wait_until_async(lambda: durable(pg_urls) == 10, 40, "the others are durable")
        assert stored_values(pg_urls.database, session("ada", "large")) is None
        await large.flush(80)
    assert len(stored_values(pg_urls.database, session("ada", "large")) or {}) == 800
    assert letters(pg_urls) == []


async def test_r10_parts_of_several_lanes_are_committed_at_once(pg_urls: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect(pg_urls) as cache, open_worker(pg_urls) as worker:
        await cache.create("ada", session_id="large", state={"b": 1})
        await create(cache, 4)
        await worker._check()
        claimed = await worker._claim(list(worker._buckets), everything=True)
        commit, reached, release = worker.flusher._bisector.commit, asyncio.Event(), asyncio.Event()

        async def slow(dirt: Dirt, read_after: int) -> FlushResult:
            if dirt.member == LARGE[1]:
                reached.set()
                await release.wait()
            return await commit(dirt, read_after)

        monkeypatch.setattr(worker.flusher._bisector, "commit", slow)
        await worker.flusher.isolation.look_into([LARGE], known=True)
        await reached.wait()
        await worker.flusher.isolation.look_into([scope for scope in claimed if scope != LARGE])
        try:
            await wait_until_async(lambda: durable(pg_urls) == 4, 10, "the others are durable")
        finally:
            release.set()
            await worker.flusher.isolation.finished()
    assert stored_values(pg_urls.database, session("ada", "large")) == {"b": 1}


LARGE = (session("ada", "large").bucket, session("ada", "large").member)
