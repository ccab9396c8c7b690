"""Migrations: the same database as the schema describes, and upgrades by several processes at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sessioncache.durable import schema
from sessioncache.durable.engine import create_engine
from sessioncache.durable.migrate import check_schema, current_revision, head_revision, upgrade_schema
from sessioncache.durable.tier import DurableTier
from sessioncache.errors import ConfigurationError, SchemaVersionError
from sessioncache.positions import ORDERS, Owner
from tests.durable_helpers import BUCKETS, INCARNATION, dirt, put, session, values_of
from tests.servers import PostgreSQLServer

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
    for older in ("0001", "0002"):
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
