"""Migrations: the same database as the schema describes, and upgrades by several processes at once."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sessioncache_migrations import locks
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sessioncache.durable import schema
from sessioncache.durable.engine import create_engine
from sessioncache.durable.migrate import (
    check_schema,
    current_revision,
    head_revision,
    missing_grants,
    upgrade_database,
    upgrade_schema,
)
from sessioncache.durable.tier import DurableTier
from sessioncache.errors import ConfigurationError, SchemaVersionError
from sessioncache.primitives.cursors import ORDERS, Owner
from tests.conftest import ROOT
from tests.durable_helpers import BUCKETS, INCARNATION, dirt, put, session, values_of
from tests.servers import PostgreSQLServer
from tests.waiting import wait_until_async

UPGRADE = """
import asyncio, sys
from sessioncache.durable.engine import create_engine
from sessioncache.durable.migrate import upgrade_schema
print(asyncio.run(upgrade_schema(create_engine(sys.argv[1]))))
"""

DESCRIPTIONS = {
    "sqlite": [
        'SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
        " FROM sqlite_master t, pragma_table_xinfo(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid",
        "SELECT name, sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL ORDER BY name",
    ],
    "postgresql": [
        "SELECT table_name, column_name, data_type, is_nullable, collation_name, column_default"
        " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname",
        "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    ],
}


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    made = create_engine(database_url)
    yield made
    await made.dispose()


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", "sessioncache_migrations:")
    return made


def describe(connection: Connection) -> list[list[str]]:
    """Everything of ours that the database has, but Alembic's own table."""
    rows = [row for query in DESCRIPTIONS[connection.dialect.name] for row in connection.execute(text(query))]
    words = [[" ".join(str(value).split()) for value in row] for row in rows]
    return [row for row in words if schema.VERSION_TABLE not in row[0]]


def downgrade(connection: Connection, to: str = "base") -> None:
    made = config()
    made.attributes["connection"] = connection
    command.downgrade(made, to)


async def test_migrations_and_schema_give_the_same_database(engine: AsyncEngine) -> None:
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        migrated = await connection.run_sync(describe)
        await connection.run_sync(downgrade)
        assert await connection.run_sync(describe) == []
        await connection.run_sync(schema.metadata.create_all)
        assert await connection.run_sync(describe) == migrated
    assert sum("sessioncache_entries" in row[0] for row in migrated) >= 1


async def test_every_step_back_and_forth_gives_the_same_database_and_keeps_what_it_holds(engine: AsyncEngine) -> None:
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        newest = await connection.run_sync(describe)
    tier = DurableTier(engine)
    await tier.swap_fences(dict.fromkeys(range(BUCKETS), (None, INCARNATION)))
    await put(tier, *(dirt(session(f"s{number}"), 5 + number, {"k": b"1"}, birth=3) for number in range(50)))
    for older in ("0001", "0002", "0004", "0005"):
        async with engine.begin() as connection:
            await connection.run_sync(downgrade, older)
            assert await connection.run_sync(describe) != newest
        assert await current_revision(engine) == older
        await upgrade_schema(engine)
        async with engine.begin() as connection:
            assert await connection.run_sync(describe) == newest
    for order in ORDERS:
        assert len(await tier.list_sessions(Owner("org", "app", None), order)) == 50
    assert await values_of(tier, session("s7")) == {"k": b"1"}


@asynccontextmanager
async def granted_at_0003(engine: AsyncEngine, role: str, *grants: str) -> AsyncIterator[None]:
    """An older schema, on which a role has been granted something; the role goes at the end."""
    try:
        await upgrade_schema(engine)
        async with engine.begin() as connection:
            await connection.run_sync(downgrade, "0003")
            await connection.execute(text(f"DROP ROLE IF EXISTS {role}"))
            await connection.execute(text(f"CREATE ROLE {role} LOGIN"))
            for grant in grants:
                await connection.execute(text(f"{grant} TO {role}"))
        yield
        async with engine.begin() as connection:
            await connection.execute(text(f"DROP OWNED BY {role}"))
            await connection.execute(text(f"DROP ROLE {role}"))
    finally:
        await engine.dispose()


async def test_an_upgrade_names_roles_that_lack_rights_on_new_tables(postgresql_url: str) -> None:
    engine, role, every = create_engine(postgresql_url), '"an agent"', "SELECT, INSERT, UPDATE, DELETE"
    async with granted_at_0003(engine, role, f"GRANT {every} ON ALL TABLES IN SCHEMA public"):
        assert await missing_grants(engine) == []
        await upgrade_schema(engine)
        (grant,) = await missing_grants(engine)
        assert grant == f"GRANT {every} ON sessioncache_namespace, sessioncache_purged TO {role}"
        async with engine.begin() as connection:
            await connection.execute(text(grant))
        assert await missing_grants(engine) == []


async def test_the_documented_grants_are_for_tables_of_later_upgrades_too(postgresql_url: str) -> None:
    page = (ROOT / "docs" / "howto" / "servers.md").read_text()
    granting = re.findall(r'-c "((?:GRANT|ALTER DEFAULT)[^"]*) TO agents"', page)
    engine = create_engine(postgresql_url)
    async with granted_at_0003(engine, "agents_of_later", *granting):
        await upgrade_schema(engine)
        assert await missing_grants(engine) == []


@pytest.mark.filterwarnings("ignore:autogenerate skipping")
async def test_alembic_finds_nothing_to_change(engine: AsyncEngine) -> None:
    def compare(connection: Connection) -> list[object]:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata))

    await upgrade_schema(engine)
    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []


def test_the_head_is_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == head_revision()


async def test_the_schema_is_checked(engine: AsyncEngine) -> None:
    assert await current_revision(engine) is None
    with pytest.raises(SchemaVersionError, match="sessioncache db upgrade") as caught:
        await check_schema(engine)
    assert (caught.value.found, caught.value.needed) == (None, head_revision())
    assert await upgrade_schema(engine) == await upgrade_schema(engine) == head_revision()
    await check_schema(engine)
    assert await current_revision(engine) == head_revision()


async def test_a_newer_schema_is_left_alone(engine: AsyncEngine) -> None:
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"))
    for refused in (check_schema, upgrade_schema):
        with pytest.raises(SchemaVersionError) as caught:
            await refused(engine)
        assert caught.value.found == "9999"


async def test_four_processes_upgrade_at_once(database_url: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", UPGRADE, database_url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]
    outputs = await asyncio.gather(*(process.communicate() for process in processes))
    assert [process.returncode for process in processes] == [0] * 4, outputs
    assert {out.split()[-1] for out, _ in outputs} == {head_revision().encode()}


async def test_several_databases_are_upgraded_at_once_in_one_process(tmp_path: Path, postgresql_url: str) -> None:
    urls = [postgresql_url, *(f"sqlite:///{tmp_path}/{number}.db" for number in range(3)), f"sqlite:///{tmp_path}/0.db"]
    engines = [create_engine(url) for url in urls]
    assert await asyncio.gather(*map(upgrade_schema, engines)) == [head_revision()] * len(urls)
    for engine in engines:
        await check_schema(engine)
        await engine.dispose()


async def test_threads_upgrade_databases_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(3)]
    upgrades = (asyncio.to_thread(asyncio.run, upgrade_database(url)) for url in urls)
    assert await asyncio.gather(*upgrades) == [head_revision()] * len(urls)


INSERT = (
    "INSERT INTO sessioncache_state VALUES (:scope, 'k', '', 'k', '1', 5, false, now())"
    " ON CONFLICT (scope_id, key_id) DO NOTHING"
)


async def test_indexes_are_built_beside_those_who_write(postgresql_url: str) -> None:
    engine, observer = create_engine(postgresql_url), create_engine(postgresql_url)
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        await connection.run_sync(downgrade, "0005")
    async with engine.connect() as slow:
        await slow.execute(text(INSERT), {"scope": "first"})
        upgrading = asyncio.ensure_future(upgrade_schema(engine))

        async def building() -> bool:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CREATE%INDEX%' AND wait_event_type = 'Lock'"
            async with observer.connect() as connection:
                return bool((await connection.execute(text(waiting))).all())

        await wait_until_async(building, 20, "the first index waits for who writes")
        async with observer.begin() as connection:
            await connection.execute(text("SET LOCAL lock_timeout = '5s'"))
            await connection.execute(text(INSERT), {"scope": "second"})
        assert not upgrading.done()
        await slow.commit()
    await upgrading
    async with engine.connect() as connection:
        scopes = (await connection.execute(text("SELECT scope_id FROM sessioncache_state ORDER BY 1"))).scalars().all()
    assert scopes == ["first", "second"]
    await engine.dispose()
    await observer.dispose()


async def test_an_upgrade_that_broke_off_while_it_built_an_index_is_finished_by_the_next(postgresql_url: str) -> None:
    engine = create_engine(postgresql_url)
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        whole = await connection.run_sync(describe)
        await connection.run_sync(downgrade, "0005")
        await connection.execute(text("CREATE INDEX sessioncache_session_dead_by_user ON sessioncache_session (org)"))
        await connection.execute(
            text("UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass(:index)"),
            {"index": "sessioncache_session_dead_by_user"},
        )
    await upgrade_schema(engine)
    async with engine.connect() as connection:
        assert await connection.run_sync(describe) == whole
    await engine.dispose()


async def until_locked(observer: AsyncEngine, query: str) -> None:
    """Wait until a query waits for a lock."""
    locked = text("SELECT 1 FROM pg_stat_activity WHERE query LIKE :query AND wait_event_type = 'Lock'")

    async def waiting() -> bool:
        async with observer.connect() as connection:
            return bool((await connection.execute(locked, {"query": query})).all())

    await wait_until_async(waiting, 20, f"{query} waits")


@pytest.mark.parametrize(
    ("before", "table", "statement"),
    [("0004", "user_scope", "%user_scope%ADD COLUMN%"), ("0002", "state", "%state%ADD COLUMN%")],
)
async def test_columns_are_added_beside_those_who_read(
    postgresql_url: str, before: str, table: str, statement: str
) -> None:
    engine, observer = create_engine(postgresql_url), create_engine(postgresql_url)
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        await connection.run_sync(downgrade, before)
    async with engine.connect() as slow:
        await slow.execute(text(f"SELECT count(*) FROM sessioncache_{table}"))
        upgrading = asyncio.ensure_future(upgrade_schema(engine))
        await until_locked(observer, statement)
        async with observer.begin() as connection:
            await connection.execute(text("SET LOCAL statement_timeout = '20s'"))
            await connection.execute(text(f"SELECT count(*) FROM sessioncache_{table}"))
        assert not upgrading.done()
        await slow.rollback()
    await upgrading
    await engine.dispose()
    await observer.dispose()


async def test_an_upgrade_waits_ever_more_rarely_and_names_who_is_in_the_way(
    postgresql_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, observer = create_engine(postgresql_url), create_engine(postgresql_url)
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        await connection.run_sync(downgrade, "0002")
    pauses: list[float] = []
    monkeypatch.setattr(locks, "_sleep", pauses.append)
    async with observer.connect() as slow:
        await slow.execute(text("SET application_name = 'night dump'"))
        await slow.execute(text("SELECT count(*) AS secret FROM sessioncache_state"))
        pid = (await slow.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        upgrading = asyncio.ensure_future(upgrade_schema(engine))
        await wait_until_async(lambda: len(pauses) >= 7, 20, "it tries again and again")
        await slow.rollback()
    await upgrading
    assert pauses[:7] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "sessioncache.migrations"]
    assert f"process {pid} (night dump, its query began " in line
    assert "sessioncache_state" in line
    assert "secret" not in line
    await engine.dispose()
    await observer.dispose()


async def test_the_view_is_replaced_beside_those_who_read_it(postgresql_url: str) -> None:
    engine, observer = create_engine(postgresql_url), create_engine(postgresql_url)
    await upgrade_schema(engine)
    async with engine.begin() as connection:
        await connection.run_sync(downgrade, "0004")
    read = text("SELECT count(*) FROM sessioncache_entries")
    async with observer.connect() as slow:
        async with observer.connect() as other:
            # Who reads the view comes behind the columns of the heads.
            await other.execute(text("LOCK TABLE sessioncache_state IN ACCESS EXCLUSIVE MODE"))
            upgrading = asyncio.ensure_future(upgrade_schema(engine))
            await until_locked(observer, "%INSERT INTO sessioncache_namespace%")
            reading = asyncio.ensure_future(slow.execute(read))
            await until_locked(observer, "%count(*) FROM sessioncache_entries%")
            await other.rollback()
        await reading
        await until_locked(observer, "%VIEW sessioncache_entries%")
        async with observer.begin() as connection:
            await connection.execute(text("SET LOCAL statement_timeout = '20s'"))
            await connection.execute(read)
        assert not upgrading.done()
        await slow.rollback()
    await upgrading
    await engine.dispose()
    await observer.dispose()


async def test_namespaces_that_there_are_are_recorded_batch_by_batch(postgresql_url: str) -> None:
    engine = create_engine(postgresql_url)
    await upgrade_schema(engine)
    tier = DurableTier(engine)
    await tier.swap_fences(dict.fromkeys(range(BUCKETS), (None, INCARNATION)))
    await put(tier, dirt(session(), 5, {"k": b"1"}, birth=3))
    async with engine.begin() as connection:
        await connection.run_sync(downgrade, "0004")
        await connection.execute(text(COPIES))
        await connection.execute(text(SPACES))
    await upgrade_schema(engine)
    async with engine.connect() as connection:
        counted = "SELECT count(*), min(revision), max(revision) FROM sessioncache_namespace"
        found = await connection.execute(text(counted))
        assert found.one() == (2_500, 5, 5)
    await engine.dispose()


COPIES = (
    "INSERT INTO sessioncache_session SELECT (json_populate_record(s, json_build_object('scope_id', 'c' || n))).*"
    " FROM sessioncache_session AS s, generate_series(1, 2500) AS n"
)
SPACES = (
    "INSERT INTO sessioncache_state SELECT scope_id, key, 'tools', key, '1', 5, false, now() FROM sessioncache_session,"
    " unnest(ARRAY['k', 'l']) AS key WHERE scope_id LIKE 'c%'"
)


async def test_another_encoding_is_refused(postgresql_server: PostgreSQLServer, postgresql_url: str) -> None:
    admin = create_engine(postgresql_url).execution_options(isolation_level="AUTOCOMMIT")
    name = "sessioncache_latin1"
    async with admin.connect() as connection:
        await connection.execute(
            text(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        )
    engine = create_engine(postgresql_server.url(name))
    for refused in (check_schema, upgrade_schema):
        with pytest.raises(ConfigurationError, match="LATIN1"):
            await refused(engine)
    await engine.dispose()
    await admin.dispose()
    postgresql_server.drop_database(name)
