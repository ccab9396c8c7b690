"""``sessioncache doctor``: what it prints, and its exit code, for a healthy installation and for each thing amiss."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from rich.console import Console
from sqlalchemy import Connection

from sessioncache.cli.doctor import as_lines, render
from sessioncache.cli.main import main
from sessioncache.durable.engine import create_engine
from sessioncache.health.examination import examine, find_targets
from sessioncache.health.findings import Report, good
from sessioncache.settings import CacheSettings
from tests.helpers import Urls, beating, connect, drain, execute, open_worker, raw, start_worker, upgrade
from tests.servers import RedisServer, free_port
from tests.waiting import stretched, wait_until
from tests.worker.poison import refuse_poison

REDIS_ALONE = ["redis", "eviction", "persistence", "memory"]
SQL_ALONE = ["database", "rights", "schema"]
BACKLOG = ["workers", "flushing", "oldest-dirty", "dirty", "dead-letters"]
NAMES = [*REDIS_ALONE, *SQL_ALONE, "layout", "buckets", "incarnations", "clocks", *BACKLOG]
PASSWORD = "hush%2Fhush"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Valkey as it should be."""
    made = RedisServer("valkey", appendonly="yes", maxmemory="200mb", maxmemory_policy="volatile-lru")
    yield made.start()
    made.destroy()


@pytest.fixture
def urls(server: RedisServer, sqlite_url: str) -> Urls:
    """Both tiers, set up, with the heartbeat of a worker; empty."""
    good = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory": "200mb", "maxmemory-policy": "volatile-lru"}
    with raw(server.url) as client:
        client.flushall()
        for name, value in good.items():
            client.config_set(name, value)
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], 10, "the log is there")
    made = Urls(server.url, sqlite_url)
    asyncio.run(set_up(made))
    return made


async def set_up(urls: Urls) -> None:
    """What the first start of a worker does."""
    await upgrade(urls.database)
    async with open_worker(urls) as worker:
        await worker.flush_once()
        await worker._tiers.backlog.beat("host:1:abc", '{"pid": 1}')


async def end_beat(urls: Urls) -> None:
    """Let that worker have ended: on a busy machine it would seem to be silent."""
    async with open_worker(urls) as worker:
        await worker._tiers.backlog.beat("host:1:abc", "", ended=True)


Say = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs the command over some URLs: its exit code, and what it found by name."""

    def run(urls: Urls, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
        code = main(["doctor", "--redis", urls.redis, "--database", urls.database, "--json", *options])
        said = json.loads(capsys.readouterr().out.splitlines()[-1])
        found = {one["name"].replace(" ", "-"): one for one in said["findings"]}
        assert said["healthy"] == all(one["level"] != "bad" for one in found.values())
        return code, found

    return run


def process(*options: str) -> tuple[int, list[str]]:
    """The command as its users run it: exit code and lines."""
    program = str(Path(sys.executable).parent / "sessioncache")
    done = subprocess.run([program, "doctor", *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def amiss(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """What is not good."""
    return {name: one["level"] for name, one in found.items() if one["level"] != "good"}


# ---- healthy


def test_a_healthy_installation_has_a_good_line_for_each_thing(urls: Urls) -> None:
    asyncio.run(end_beat(urls))
    with start_worker(urls) as worker:
        wait_until(lambda: worker.pid in beating(urls.redis), 20, "the worker lives")
        code, lines = process("--redis", urls.redis, "--database", urls.database)
    assert [line.split()[0] for line in lines[:-1]] == ["good"] * len(NAMES)
    assert [line[9:22].rstrip().replace(" ", "-") for line in lines[:-1]] == NAMES
    assert lines[0].startswith("good     redis         Valkey ")
    assert lines[-1] == f"healthy: {len(NAMES)} good"
    assert code == 0


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_each_engine_over_postgresql_is_told_with_its_version_and_driver(
    request: pytest.FixtureRequest, kind: str, postgresql_url: str, doctor: Say
) -> None:
    redis = request.getfixturevalue("valkey" if kind == "valkey" else "redis_server").url
    with raw(redis) as client:
        client.flushall()
    urls = Urls(redis, postgresql_url)
    asyncio.run(set_up(urls))
    code, found = doctor(urls)
    assert amiss(found) == {"persistence": "warning", "memory": "warning"}, "as the servers of tests are"
    assert found["redis"]["found"].startswith(f"{kind.capitalize()} ")
    assert found["database"]["found"].startswith("PostgreSQL ")
    assert ", driver psycopg 3." in found["database"]["found"]
    assert code == 0


def test_an_examination_changes_nothing(urls: Urls, doctor: Say) -> None:
    async def write() -> None:
        async with connect(urls) as cache:
            await cache.create("ada", session_id="s", state={"a": 1})

    asyncio.run(write())
    with raw(urls.redis) as client:
        client.hset("sessioncache:{3}:ctl", "registered", "0")
    file = Path(urls.database.removeprefix("sqlite:///"))
    before = contents(urls.redis), file.read_bytes()
    code, found = doctor(urls)
    assert found["dirty"]["found"].startswith("1 of ")
    assert found["buckets"]["level"] == "warning"
    assert (contents(urls.redis), file.read_bytes()) == before
    assert code == 0


def contents(redis_url: str) -> dict[bytes, Any]:
    """Every key with its content."""
    with raw(redis_url) as client:
        return {key: client.dump(key) for key in client.scan_iter(count=1000)}


def test_what_was_never_used_is_not_set_up_by_looking_at_it(urls: Urls, doctor: Say, tmp_path: Path) -> None:
    with raw(urls.redis) as client:
        client.flushall()
        missing = tmp_path / "missing.db"
        code, found = doctor(Urls(urls.redis, f"sqlite:///{missing}"))
        assert client.dbsize() == 0
    assert not missing.exists()
    assert found["database"]["found"].startswith("there is no such file")
    assert amiss(found) == {"database": "bad", "workers": "bad"}
    assert code == 3


def test_a_database_that_a_crash_left_is_not_mended_by_looking_at_it(urls: Urls, doctor: Say, tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    connection = sqlite3.connect(file)
    connection.execute("INSERT INTO sessioncache_layout (name, value) VALUES ('last_probe', '')")
    connection.commit()
    for name in ("state.db", "state.db-wal"):
        shutil.copy(tmp_path / name, tmp_path / f"left-{name}")
    connection.close()
    before = [(tmp_path / name).read_bytes() for name in ("left-state.db", "left-state.db-wal")]
    code, found = doctor(Urls(urls.redis, f"sqlite:///{tmp_path}/left-state.db"))
    assert [(tmp_path / name).read_bytes() for name in ("left-state.db", "left-state.db-wal")] == before
    assert amiss(found) == {}
    assert code == 0


# ---- Redis


def test_a_policy_that_evicts_what_is_dirty_is_bad(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    code, found = doctor(urls)
    assert amiss(found) == {"eviction": "bad"}
    assert "allkeys-lru" in found["eviction"]["found"]
    assert "CONFIG SET maxmemory-policy volatile-lru" in found["eviction"]["advice"]
    assert code == 1


def test_without_persistence_there_is_a_warning(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        client.config_set("appendonly", "no")
    code, found = doctor(urls)
    assert amiss(found) == {"persistence": "warning"}
    assert found["persistence"]["found"].startswith("neither append-only file nor snapshots")
    assert "appendonly yes" in found["persistence"]["advice"]
    assert code == 0


def test_memory_that_is_nearly_full_is_bad(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.97))
    code, found = doctor(urls)
    assert amiss(found) == {"memory": "bad"}
    assert code == 1


def test_a_user_who_may_not_ask_for_the_configuration_is_told_what_is_unknown(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        client.acl_setuser(
            "agent", enabled=True, passwords="+pw", keys="*", channels="*", commands=["+@all", "-config"]
        )
    limited = Urls(urls.redis.replace("unix://", "unix://agent:pw@"), urls.database)
    code, found = doctor(limited)
    assert amiss(found) == {}
    assert found["persistence"]["found"] == "append-only file, fsync unknown (CONFIG is refused)"
    assert code == 0
    with raw(urls.redis) as client:
        client.acl_setuser("agent", enabled=True, commands=["-info"])
    code, found = doctor(limited)
    assert amiss(found) == {
        "redis": "warning",
        "eviction": "warning",
        "persistence": "warning",
        "memory": "warning",
        "workers": "bad",
    }
    assert "NOPERM" in found["workers"]["found"], "no script of ours works without INFO"
    assert code == 1


def test_a_redis_that_forgot_everything_is_a_warning(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        client.flushall()
    assert amiss(doctor(urls)[1]) == {"layout": "warning", "workers": "bad"}
    asyncio.run(set_up(urls))
    code, found = doctor(urls)
    assert amiss(found) == {"incarnations": "warning"}
    assert found["incarnations"]["found"].startswith("256 changes within an hour, 256 within a day")
    assert code == 0


def test_db_restored_does_not_make_it_seem_that_redis_forgot_something(urls: Urls, doctor: Say) -> None:
    assert main(["db", "restored", "--redis", urls.redis, "--database", urls.database]) == 0
    code, found = doctor(urls)
    assert amiss(found) == {}
    assert "renewed by `db restored` " in found["incarnations"]["found"]
    assert code == 0


def test_two_installations_that_do_not_belong_together_are_bad(urls: Urls, doctor: Say, tmp_path: Path) -> None:
    other = Urls(urls.redis, f"sqlite:///{tmp_path}/other.db")
    asyncio.run(upgrade(other.database))
    execute(other.database, "INSERT INTO sessioncache_layout (name, value) VALUES ('buckets', '8')")
    code, found = doctor(other)
    assert amiss(found) == {"layout": "bad", "buckets": "bad"}
    assert "buckets is 8 there and 256 here" in found["layout"]["found"]
    assert code == 1


# ---- SQL


def test_a_schema_that_is_behind_or_missing_or_ahead_is_bad(urls: Urls, doctor: Say, tmp_path: Path) -> None:
    asyncio.run(downgrade(urls.database))
    code, found = doctor(urls)
    assert amiss(found) == {"schema": "bad"}
    assert found["schema"]["advice"] == "run `sessioncache db upgrade`"
    assert code == 1
    execute(urls.database, "UPDATE sessioncache_alembic_version SET version_num = '9999'")
    code, found = doctor(urls)
    assert amiss(found) == {"schema": "bad"}
    assert "db upgrade" not in found["schema"]["advice"]
    (tmp_path / "empty.db").touch()
    code, found = doctor(Urls(urls.redis, f"sqlite:///{tmp_path}/empty.db"))
    assert amiss(found) == {"schema": "bad"}
    assert found["schema"]["found"] == "the database has no sessioncache schema"
    assert (tmp_path / "empty.db").stat().st_size == 0


async def downgrade(database_url: str) -> None:
    """Go one step back."""
    engine = create_engine(database_url)
    async with engine.begin() as connection:
        await connection.run_sync(_downgrade)
    await engine.dispose()


def _downgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", "sessioncache_migrations:")
    config.attributes["connection"] = connection
    command.downgrade(config, "0001")


# ---- the way from one to the other


def test_without_a_worker_nothing_is_flushed_and_that_is_bad(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        client.hdel("sessioncache:{0}:ctl", "w:host:1:abc")
    code, found = doctor(urls)
    assert amiss(found) == {"workers": "bad"}
    assert found["workers"]["found"] == "none runs: nothing is flushed"
    assert "sessioncache-worker" in found["workers"]["advice"]
    assert code == 1


def test_a_worker_that_has_fallen_silent_is_a_warning_beside_others_and_bad_alone(urls: Urls, doctor: Say) -> None:
    with raw(urls.redis) as client:
        old = f"{(time.time() - 100) * 1_000_000:.0f}|{{}}"
        client.hset("sessioncache:{0}:ctl", "w:host:2:def", old)
        code, found = doctor(urls)
        assert amiss(found) == {"workers": "warning"}
        assert found["workers"]["found"].endswith("; 1 silent for up to 100 s")
        assert code == 0
        client.hdel("sessioncache:{0}:ctl", "w:host:1:abc")
    code, found = doctor(urls)
    assert amiss(found) == {"workers": "bad"}
    assert code == 1


def test_dirt_that_has_waited_too_long_is_told_with_its_age(urls: Urls, doctor: Say) -> None:
    async def write() -> None:
        async with connect(urls) as cache:
            await cache.create("ada", state={"a": 1})

    asyncio.run(write())
    with raw(urls.redis) as client:
        (since,) = client.scan_iter(match="sessioncache:*:since", count=1000)
        member: Any = client.zrange(since, 0, -1)[0]
        client.zadd(since, {member: (time.time() - 60) * 1_000_000})
        assert amiss(doctor(urls)[1]) == {"oldest-dirty": "warning"}
        client.zadd(since, {member: (time.time() - 2_000) * 1_000_000})
    code, found = doctor(urls)
    assert amiss(found) == {"oldest-dirty": "bad"}
    assert found["oldest-dirty"]["found"].startswith("33 min old (flush delay 1 s)")
    assert code == 1


def test_dead_letters_are_bad_and_never_quoted(urls: Urls, doctor: Say) -> None:
    async def write() -> None:
        async with connect(urls) as cache:
            await cache.create("ada", session_id="bad", state={"poison": "secret"})
            await drain(urls)

    refuse_poison(urls.database)
    asyncio.run(write())
    code, found = doctor(urls)
    assert amiss(found) == {"dead-letters": "bad"}
    assert found["dead-letters"]["found"].startswith("1: ")
    assert "sessioncache dead list" in found["dead-letters"]["advice"]
    assert "secret" not in str(found)
    assert code == 1


# ---- away


def test_with_redis_away_the_database_is_examined_all_the_same(urls: Urls) -> None:
    address = f"127.0.0.1:{free_port()}"
    code, lines = process("--redis", f"redis://agent:{PASSWORD}@{address}/0", "--database", urls.database)
    why = "nobody listens there (ConnectionRefusedError)"
    assert lines[0] == f"bad      redis         Redis cannot be reached: {why} ({address})"
    assert "-> see that Redis runs there" in lines[1]
    told = [line.split()[:2] for line in lines[2:-1]]
    assert told == [["good", name] for name in (*SQL_ALONE, "layout", "incarnations", "clocks")]
    assert lines[-1].startswith("unhealthy: 1 bad, 6 good; what only the unavailable tier knows")
    assert "hush" not in "\n".join(lines)
    assert code == 3


def test_with_the_database_away_redis_is_examined_all_the_same(urls: Urls) -> None:
    address = f"127.0.0.1:{free_port()}/name"
    code, lines = process("--redis", urls.redis, "--database", f"postgresql://agent:{PASSWORD}@{address}")
    told = [line for line in lines if not line.startswith(" ")][:-1]
    found = [line[9:22].rstrip().replace(" ", "-") for line in told]
    assert found == [*REDIS_ALONE, "database", "layout", "buckets", "clocks", *BACKLOG]
    (bad,) = (line for line in told if not line.startswith("good"))
    assert bad.startswith("bad      database      the SQL database cannot be used")
    assert bad.endswith(f"({address})")
    assert "hush" not in "\n".join(lines)
    assert code == 3


def test_with_both_away_both_are_told(doctor: Say) -> None:
    nowhere = free_port()
    away = Urls(f"redis://:{PASSWORD}@127.0.0.1:{nowhere}", f"postgresql://a:{PASSWORD}@127.0.0.1:{nowhere}/b")
    code, found = doctor(away)
    assert amiss(found) == {"redis": "bad", "database": "bad"}
    assert set(found) == {"redis", "database"}
    assert "hush" not in str(found)
    assert code == 3


def test_a_wrong_password_is_a_tier_out_of_reach(urls: Urls, doctor: Say) -> None:
    code, found = doctor(Urls(urls.redis.replace("unix://", f"unix://nobody:{PASSWORD}@"), urls.database))
    assert found["redis"]["level"] == "bad"
    assert "user name or password" in found["redis"]["found"]
    assert found["schema"]["level"] == "good"
    assert "hush" not in str(found)
    assert code == 3


def test_tiers_that_hang_are_waited_for_at_the_same_time_and_not_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        targets = find_targets(f"redis://{address}", f"postgresql://{address}/name", "")
        began = time.monotonic()
        report = asyncio.run(examine(targets, CacheSettings(), timeout=1.0))
    assert time.monotonic() - began < stretched(4)
    assert [one.name for one in report.findings] == ["redis", "database"]
    assert report.findings[1].found.startswith("the SQL database did not answer in time")
    assert report.away


def test_the_embedded_default_is_not_started_by_looking_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SESSIONCACHE_REDIS_URL", "SESSIONCACHE_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["doctor", "--data-dir", str(tmp_path / "data")]) == 3
    said = capsys.readouterr().out
    assert f"the embedded default in {tmp_path}/data does not run" in said
    assert "--redis URL" in said
    assert not (tmp_path / "data").exists()


def test_only_one_url_is_wrong_usage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESSIONCACHE_DATABASE_URL", raising=False)
    assert main(["doctor", "--redis", "redis://127.0.0.1"]) == 2
    assert "SESSIONCACHE_DATABASE_URL" in capsys.readouterr().err


# ---- how it is shown


def test_on_a_terminal_the_same_is_told_in_colours(urls: Urls) -> None:
    with raw(urls.redis) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    report = asyncio.run(examine(find_targets(*urls, ""), CacheSettings()))
    shown = drawn(report, force_terminal=True, color_system="standard")
    assert "\x1b[1;31mbad" in shown
    assert "\x1b[32mgood" in shown
    assert words(drawn(report, color_system=None)) == words(as_lines(report))


def test_what_was_found_is_told_whole_and_without_control_characters() -> None:
    found = f"it runs at /{'long/' * 20}\x1b[31m\x07"
    report = Report([good("redis", found)])
    assert r"long/\x1b[31m\x07" in as_lines(report)
    shown = drawn(report, width=40, color_system=None)
    assert r"/\x1b[31m\x07" in "".join(shown.split())
    assert not {"\x1b", "\x07", "…"} & set(shown)


def drawn(report: Report, *, width: int = 200, **options: Any) -> str:
    """The rendering as text."""
    console = Console(width=width, **options)
    with console.capture() as capture:
        console.print(render(report))
    return capture.get()


def words(text: str) -> list[str]:
    """What is said, however it is laid out."""
    return text.replace("→", "->").split()


def test_help_explains_levels_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--help"])
    assert end.value.code == 0
    told = capsys.readouterr().out
    for word in ("good  ", "warning  ", "bad  ", "0  nothing is bad", "1  something is bad", "3  Redis or the"):
        assert word in told
