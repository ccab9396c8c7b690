"""Engines and errors: which databases, what a failure looks like, what survives one."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sessioncache.durable import engine as engines
from sessioncache.durable import transactions
from sessioncache.durable.engine import create_engine, prepare_engine
from sessioncache.durable.errors import RefusedDataError
from sessioncache.durable.migrate import upgrade_schema
from sessioncache.durable.tier import DurableTier
from sessioncache.durable.transactions import writing
from sessioncache.errors import ConfigurationError, DurableTierUnavailableError
from sessioncache.health.examination import examine, find_targets
from sessioncache.primitives.scopes import bare_id
from sessioncache.settings import CacheSettings
from tests.conftest import StartPostgreSQL
from tests.durable_helpers import dirt, open_tier, put, session, values_of
from tests.servers import PostgreSQLServer
from tests.waiting import wait_until_async


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///some/file.db", "aiosqlite"),
        ("sqlite+aiosqlite:///some/file.db", "aiosqlite"),
        ("postgres://u:p@127.0.0.1/d", "psycopg"),
        ("postgresql://u:p@127.0.0.1/d", "psycopg"),
        ("postgresql+psycopg://u:p@127.0.0.1/d", "psycopg"),
    ],
)
def test_urls_are_normalised(url: str, driver: str) -> None:
    engine = create_engine(url)
    assert engine.dialect.driver.startswith(driver)
    assert prepare_engine(prepare_engine(engine)) is engine


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@127.0.0.1/d",
        "postgresql+asyncpg://u:hunter2@127.0.0.1/d",
        "hunter2",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
    ],
)
def test_what_we_cannot_use_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_engine(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:se@hunter2@127.0.0.1:1/d",
        "postgresql://ada:s@hunter2/cret@127.0.0.1:1/d",
        "postgresql://ada:s@hunter2?cret@127.0.0.1:1/d",
        "postgresql://ada:s@hunter2:cret@127.0.0.1:1/d",
        "postgresql://hunter2/cret@127.0.0.1:1/d",
    ],
)
async def test_a_password_that_is_not_escaped_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="in a password @ is written %40") as caught:
        create_engine(url)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        await examine(find_targets("redis://127.0.0.1:1", url, "."), CacheSettings(), timeout=0.1)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://ada@corp:a/b#c@h/d", "postgresql://h/d?passfile=/a@b", "sqlite:///a@b"])
def test_an_at_sign_that_is_of_use_is_taken(url: str) -> None:
    assert "@" not in str(create_engine(url).url.host)


@pytest.mark.parametrize(("url", "extra"), [("sqlite:///f", "sqlite"), ("postgresql:///d", "postgres")])
def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, url: str, extra: str) -> None:
    def missing(*_args: Any, **_kwargs: Any) -> None:
        raise ModuleNotFoundError("No module named 'driver'")

    monkeypatch.setattr(engines, "create_async_engine", missing)
    with pytest.raises(ConfigurationError, match=rf"pip install 'sessioncache\[{extra}\]'"):
        create_engine(url)


async def test_an_engine_of_the_callers_stays_theirs(database_url: str) -> None:
    theirs = create_async_engine(create_engine(database_url).url, isolation_level="AUTOCOMMIT")
    tier = DurableTier(theirs)
    await upgrade_schema(theirs)
    await tier.swap_fences(dict.fromkeys(range(8), (None, "first")))
    await put(tier, dirt(session(), 5, {"k": b"1"}))
    with pytest.raises(RefusedDataError):
        await put(tier, dirt(session("t"), 5), dirt(session(), 6, message_count=2**70))
    with pytest.raises(asyncio.CancelledError):
        await _delete_and_cancel(theirs)
    assert await tier.find_sessions(bare_id("org", "t")) == []
    assert await values_of(tier, session()) == {"k": b"1"}
    await tier.aclose()
    async with theirs.connect() as connection:
        await connection.execute(text("CREATE TABLE theirs (a integer)"))
    async with theirs.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM theirs"))).scalar_one() == 0
    await theirs.dispose()


async def _delete_and_cancel(engine: AsyncEngine) -> None:
    async with writing(engine, 7) as connection:
        await connection.execute(text("DELETE FROM sessioncache_state"))
        raise asyncio.CancelledError


async def test_sqlite_is_set_up_for_durability(sqlite_url: str) -> None:
    async with open_tier(sqlite_url) as tier, writing(tier.engine, 3) as connection:
        found = [
            (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert found == ["wal", 2, 3000]


async def test_sqlite_readers_do_not_wait_for_a_writer(sqlite_url: str) -> None:
    async with open_tier(sqlite_url) as tier, writing(tier.engine, 7), asyncio.timeout(2):
        assert await values_of(tier, session()) is None


async def test_calls_wait_for_a_connection(database_url: str) -> None:
    async with open_tier(database_url) as tier:
        assert len(await asyncio.gather(*(tier.clock() for _ in range(60)))) == 60


async def test_a_database_out_of_reach_is_unavailable() -> None:
    tier = DurableTier.connect("postgresql://someone:hunter2@127.0.0.1:1/d")
    with pytest.raises(DurableTierUnavailableError) as caught:
        await tier.clock()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


async def test_a_file_that_cannot_be_opened_is_unavailable() -> None:
    threads = threading.active_count()
    tier = DurableTier.connect("sqlite:////nowhere/at/all/state.db")
    with pytest.raises(DurableTierUnavailableError):
        await tier.clock()
    await tier.aclose()
    await wait_until_async(lambda: threading.active_count() <= threads, 5, "the driver's thread to end")


async def test_why_a_database_cannot_be_used_is_told_in_our_own_words(
    postgresql_server: PostgreSQLServer, tmp_path: Path
) -> None:
    url = postgresql_server.url("secret_name")
    reasons = {
        url: "there is no such database or role",
        "postgresql://ada:secret@127.0.0.1:1/state": "nobody listens there",
        "postgresql://ada:secret@no-such-host.invalid/state": "there is no such host",
        f"sqlite:///{tmp_path}/none/secret.db": "the file cannot be opened",
    }
    for where, reason in reasons.items():
        tier = DurableTier.connect(where)
        with pytest.raises(DurableTierUnavailableError, match=reason) as told:
            await tier.clock()
        assert "secret" not in str(told.value)
        await tier.aclose()


async def test_a_database_without_schema_says_what_to_do(database_url: str) -> None:
    tier = DurableTier.connect(database_url)
    with pytest.raises(DurableTierUnavailableError, match="sessioncache db upgrade"):
        await tier.read_layout()
    await tier.aclose()


async def test_a_restarted_server_is_used_again(start_postgresql: StartPostgreSQL) -> None:
    server = start_postgresql()
    async with open_tier(server.url()) as tier:
        await put(tier, dirt(session(), 5, {"k": b"1"}))
        server.kill()
        for _ in range(2):
            with pytest.raises(DurableTierUnavailableError):
                await put(tier, dirt(session(), 6, {"k": b"2"}))
        server.start()
        assert await put(tier, dirt(session(), 6, {"k": b"2"})) == [(6, [6])]


async def test_cancelled_calls_leave_the_engine_usable(database_url: str) -> None:
    chance = random.Random(7)
    async with open_tier(database_url) as tier:
        for i in range(40):
            call = asyncio.create_task(put(tier, dirt(session(), 10 + i, {"k": str(i).encode()})))
            await asyncio.sleep(chance.random() * 0.01)
            call.cancel()
            async with asyncio.timeout(3):
                await asyncio.wait([call])
        assert await put(tier, dirt(session(), 100, {"k": b'"last"'})) == [(100, [100])]
        assert await values_of(tier, session()) == {"k": b'"last"'}
        assert "checked out connections: 0" in tier.engine.pool.status().lower()


async def test_r10_a_database_that_is_set_read_only_is_left_alone(postgresql_url: str) -> None:
    """Also on a connection that has read before, and for the transactions of the engine's owner."""
    async with open_tier(postgresql_url):
        pass
    maintained = DurableTier.connect(f"{postgresql_url}&options=-c%20default_transaction_read_only%3Don")
    await maintained.read_layout()
    for _ in range(2):
        with pytest.raises(DurableTierUnavailableError, match="SQLSTATE 25006"):
            await put(maintained, dirt(session(), 5, {"k": b"1"}))
        async with maintained.engine.connect() as theirs:
            assert (await theirs.execute(text("SHOW transaction_read_only"))).scalar_one() == "on"
    await maintained.aclose()


async def test_a_connection_that_answers_another_statement_is_used_no_more(postgresql_url: str) -> None:
    engine = create_engine(postgresql_url)

    async def ask(statement: str) -> object:
        async with writing(engine, None) as connection:
            return (await connection.execute(text(statement))).scalar_one()

    before = await ask("SELECT pg_backend_pid()")
    assert await ask("SELECT pg_backend_pid()") == before
    with pytest.raises(DurableTierUnavailableError, match="answered another statement"):
        await ask("SET application_name = 'none'")
    assert await ask("SELECT pg_backend_pid()") != before
    await engine.dispose()


async def test_a_transaction_that_writes_meets_an_answer_without_rows_at_once(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = create_engine(postgresql_url)
    monkeypatch.setattr(
        transactions, "_TIMEOUTS", "CREATE TEMPORARY TABLE another AS SELECT %s::text AS a, %s::text AS b"
    )
    entered = False
    with pytest.raises(DurableTierUnavailableError, match="answered another statement"):
        async with writing(engine, 5):
            entered = True
    assert not entered
    await engine.dispose()
