"""What holds for all commands: exit codes, JSON on the last line, plain text in pipes, help, tiers that are away."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import make_url

from sessioncache import SessionCache
from sessioncache.cli import commands, main, sessions
from sessioncache.settings import CacheSettings
from tests.cli.conftest import Run
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, drain, execute, raw, settle, start_worker
from tests.waiting import stretched, wait_until
from tests.worker.poison import refuse_poison

PROGRAM = Path(sys.executable).parent / "sessioncache"
NO_REDIS = "redis://ada:secret@127.0.0.1:1/0"
NO_DATABASE = "postgresql://ada:secret@127.0.0.1:1/state"
READING = [
    ("sessions", "list"),
    ("sessions", "show", "s1"),
    ("sessions", "export", "s1"),
    ("dead", "list"),
    ("dead", "show", "none"),
    ("db", "current"),
    ("db", "check"),
    ("flush", "--timeout", "0"),
]


def program(urls: Urls, *words: str, **options: int) -> subprocess.Popen[bytes]:
    """A command as a process of its own, with pipes."""
    command = [PROGRAM, *words, "--redis", urls.redis, "--database", urls.database]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    # What runs the tests may have a width of its own to tell.
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"NO_COLOR": "1"}
    return subprocess.Popen(command, env=env, **pipes)  # type: ignore[call-overload, no-any-return]


# ---- help


def helps() -> list[tuple[str, ...]]:
    """Every command."""
    sessions_, letters = ("list", "show", "delete", "fork", "export"), ("list", "show", "retry", "drop")
    database = ("upgrade", "current", "check", "adopt", "restored")
    groups = {"sessions": sessions_, "dead": letters, "db": database}
    alone = [("demo",), ("replay",), ("flush",), ("top",), ("doctor",), *((group,) for group in groups)]
    return [(), *alone, *((group, action) for group, actions in groups.items() for action in actions)]


@pytest.mark.parametrize("words", helps(), ids=" ".join)
def test_help_tells_what_a_command_does_and_what_it_ends_with(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert "exit codes:" in told
    assert (
        not words
        or (len(words) == 1 and words[0] in ("sessions", "dead", "db"))
        or "examples:\n  sessioncache " in told
    )
    assert max(map(len, told.splitlines())) <= 140


def test_the_help_of_no_command_imports_a_tier() -> None:
    code = f"from sessioncache.cli import main\nfor words in {helps()!r}:\n"
    code += "    try: main([*words, '--help'])\n    except SystemExit: pass"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "argparse" in imported
    assert imported & {"alembic", "redis", "rich", "sqlalchemy", "asyncpg", "psycopg"} == set()


# ---- what is printed


@pytest.mark.parametrize("words", READING, ids=" ".join)
async def test_a_reading_command_answers_programs_and_pipes(
    cache: SessionCache, urls: Urls, run: Run, words: tuple[str, ...]
) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    await drain(urls)
    as_json, plain = await run(*words, "--json"), await run(*words)
    assert isinstance(as_json.json, dict)
    assert as_json.code == plain.code == (1 if "none" in words else 0)
    assert not set("\x1b│┃─━") & set(plain.out)


async def test_letters_are_listed_without_control_characters_and_make_a_flush_exit_1(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    refuse_poison(urls.database)
    await cache.create("[bold]ada\x1b[31m", session_id="bad", state={"poison": "secret"})
    unflushed = await run("flush", "--timeout", "0")
    assert unflushed.code == 1
    assert "no worker is alive" in unflushed.out
    await drain(urls)
    header, letter = (await run("dead", "list")).rows
    assert letter[header.index("user")] == r"[bold]ada\x1b[31m"
    assert r"user: [bold]ada\x1b[31m" in (await run("dead", "show", letter[0])).out
    refused = await run("flush", "--timeout", "0", "--json")
    assert (refused.code, refused.json["dirty"], refused.json["dead_letters"]) == (1, 0, 1)
    assert refused.json["flushed"] is False
    assert "refuses 1 entry" in (await run("flush", "--timeout", "0")).out


async def test_whoever_names_one_letter_does_not_drop_others(cache: SessionCache, urls: Urls, run: Run) -> None:
    refuse_poison(urls.database)
    for session_id in ("s1", "s2"):
        await cache.create("ada", session_id=session_id, state={"poison": 1})
    await drain(urls)
    letters = [letter["id"] for letter in (await run("dead", "list", "--json")).json["letters"]]
    for words in ((letters[0], "--all"), ()):
        refused = await run("dead", "drop", *words, "--json")
        assert (refused.code, refused.json["kind"]) == (2, "ConfigurationError")
    unknown = await run("dead", "drop", "none", "--json")
    assert (unknown.code, unknown.json, unknown.err) == (1, {"dropped": []}, "there is no such dead letter\n")
    assert len((await run("dead", "list", "--json")).json["letters"]) == 2
    dropped = await run("dead", "drop", letters[0], "--json")
    assert dropped.json == {"dropped": letters[:1]}
    assert dropped.err.startswith("SQL never had the keys of 1 letter: ")


async def test_a_terminal_gets_a_table_within_its_width_and_no_control_character_of_a_user(
    cache: SessionCache, urls: Urls
) -> None:
    await cache.create("ada", session_id="s1", title="One\x1b[31m", state={"a": "x" * 500, "b\x1b[5m": "日本語"})
    listed, shown = await asyncio.gather(
        asyncio.to_thread(on_terminal, urls, "sessions", "list"),
        asyncio.to_thread(on_terminal, urls, "sessions", "show", "s1"),
    )
    assert r"One\x1b[31m" in listed
    assert re.search(r"\d+ (s|min) ago|now", listed)
    assert r"b\x1b[5m" in shown
    assert "日本語" in shown
    assert "xxx…" in shown
    assert not {"\x1b[31m", "\x1b[5m"} & set(re.findall(r"\x1b\[\d+m", listed + shown))
    assert max(map(len, shown.splitlines())) <= 80


async def test_a_terminal_too_narrow_for_a_table_gets_a_line_for_each_cell(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada", session_id="s1", title="One\x1b[31m")
    lines = (await asyncio.to_thread(on_terminal, urls, "sessions", "list", columns=40)).splitlines()
    assert lines[:3] == ["id        s1", "app       app", "user      ada"]
    assert lines[3] == r"title     One\x1b[31m"
    assert lines[5:] == ["messages  0", "tokens    0", ""]


def on_terminal(urls: Urls, *words: str, columns: int = 80) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = program(urls, *words, stdout=theirs)
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 65_536):
            printed += part
    except OSError:  # how Linux tells the end of a terminal
        pass
    os.close(ours)
    assert process.wait(stretched(20)) == 0, process.communicate()[1]
    process.communicate()
    return printed.decode()


def test_an_upgrade_that_waits_for_others_says_so(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = sqlite3.connect(make_url(sqlite_url).database or "", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    told: list[str] = []

    def let_go(text: str) -> None:
        told.append(text)
        other.execute("ROLLBACK")

    monkeypatch.setattr(commands, "_SILENCE", 0.1)
    monkeypatch.setattr(commands, "note", let_go)
    assert main(["db", "upgrade", "--database", sqlite_url, "--json"]) == 0
    other.close()
    assert json.loads(capsys.readouterr().out)["up_to_date"] is True
    (said,) = told
    assert "others hold locks" in said


# ---- how commands end


async def test_control_c_ends_a_command_quietly(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada")
    process = program(urls, "flush", "--timeout", "60")
    await asyncio.to_thread(wait_until, lambda: is_waiting(process.pid), 20, "the command works")
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate, timeout=20)
    assert (process.returncode, out, err) == (130, b"", b"")
    await drain(urls)


def is_waiting(pid: int) -> bool:
    """Whether a process has a connection, as it has once it works on the tiers."""
    try:
        return sum(os.readlink(fd).startswith("socket:") for fd in Path(f"/proc/{pid}/fd").iterdir()) > 2
    except OSError:
        return False


async def test_output_that_nobody_takes_ends_a_command_without_a_traceback(cache: SessionCache, urls: Urls) -> None:
    await cache.create("ada")
    reader, closed = os.pipe()
    os.close(reader)
    outputs = {closed: 141, os.open("/dev/full", os.O_WRONLY): 2}
    ended = await asyncio.gather(*(asyncio.to_thread(listed_to, urls, output) for output in outputs))
    assert [code for code, _ in ended] == list(outputs.values())
    for _, err in ended:
        assert "Traceback" not in err
        assert "Exception" not in err


def listed_to(urls: Urls, output: int) -> tuple[int, str]:
    """Exit code and standard error of a list whose output goes to a descriptor."""
    process = program(urls, "sessions", "list", stdout=output)
    os.close(output)
    err = process.communicate(timeout=stretched(20))[1].decode()
    return process.returncode, err


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "list", "--limit", "0"),
        ("sessions", "show"),
        ("flush", "--timeout", "nan"),
        ("sessions", "delete", "s1", "--wait", "-1"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_exit_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert "usage: sessioncache" in said.err
    told = json.loads(said.out)
    assert told["kind"] == "ConfigurationError"
    assert told["error"] in said.err


async def test_an_id_that_begins_with_a_dash_comes_last_behind_two_dashes(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    await cache.create("ada", session_id="--id", state={"a": 1})
    with pytest.raises(SystemExit):
        await run("sessions", "show", "--id")
    tiers = ("--redis", urls.redis, "--database", urls.database)
    assert await asyncio.to_thread(main, ["sessions", "show", *tiers, "--", "--id"]) == 0


# ---- tiers that are away


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that give up after half a second."""
    for module in (commands, sessions):
        monkeypatch.setattr(module, "CacheSettings", partial(CacheSettings, timeout=0.5))


@pytest.mark.parametrize("words", [*READING, ("db", "restored"), ("dead", "retry", "--all")], ids=" ".join)
@pytest.mark.usefixtures("impatient")
async def test_both_tiers_away_is_exit_3_and_says_which_where_and_what_to_do(run: Run, words: tuple[str, ...]) -> None:
    said = await run(*words, "--json", on=Urls(NO_REDIS, NO_DATABASE))
    assert said.code == 3
    away = NO_DATABASE if words[0] == "db" and words[1] != "restored" else NO_REDIS
    kind = "DurableTierUnavailableError" if away is NO_DATABASE else "HotTierUnavailableError"
    assert (said.json["kind"], set(said.json)) == (kind, {"error", "kind"})
    assert away.replace("secret", "***") in said.err
    for part in ("what still works", "what to do"):
        assert part in said.err
    assert "secret" not in said.out + said.err


@pytest.mark.usefixtures("impatient")
async def test_a_replica_is_told_as_one(start_redis: StartRedis, urls: Urls, run: Run) -> None:
    replica = start_redis("valkey", replicaof="127.0.0.1 1", replica_serve_stale_data="yes")
    said = await run("sessions", "list", on=Urls(replica.url, urls.database))
    assert said.code == 3
    assert "is a replica, which takes no writes" in said.err
    assert "`sessioncache doctor` examines both tiers" in said.err


async def test_without_redis_the_database_can_be_looked_at(urls: Urls, run: Run) -> None:
    without = Urls(NO_REDIS, urls.database)
    assert (await run("sessions", "list", on=without)).code == 3
    assert (await run("db", "check", on=without)).code == 0


@pytest.mark.usefixtures("impatient")
async def test_without_the_database_hot_sessions_are_shown_and_cold_ones_are_exit_3(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    without, whose = Urls(urls.redis, NO_DATABASE), ("--app", "app", "--user", "ada")
    hot = await run("sessions", "show", "s1", *whose, "--json", on=without)
    assert (hot.code, hot.json["session"]["state"]) == (0, {"a": 1})
    for words in (("list",), ("show", "s1"), ("show", "cold", *whose)):
        said = await run("sessions", *words, on=without)
        assert (said.code, said.out) == (3, "")
        assert "cannot be used: nobody listens there" in said.err
        assert "the SQL database: postgresql://ada:***@127.0.0.1:1/state" in said.err
        assert "--app and --user" in said.err


async def test_without_the_database_a_session_is_shown_but_for_namespaces_that_only_it_may_know(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.namespace("cold").set("x", 1)
    await settle(urls)
    found = await cache.get("ada", "s1")
    await found.namespace("hot").set("x", 1)
    words = ("sessions", "show", "s1", "--app", "app", "--user", "ada", "--json")
    seen = (await run(*words, on=Urls(urls.redis, NO_DATABASE))).json["session"]
    assert (seen["state"], list(seen["namespaces"]), seen["complete"]) == ({"a": 1}, ["hot"], False)
    whole = (await run(*words)).json["session"]
    assert (list(whole["namespaces"]), whole["complete"]) == (["cold", "hot"], True)


async def test_what_the_database_refuses_of_a_session_is_told(cache: SessionCache, urls: Urls, run: Run) -> None:
    refuse_poison(urls.database)
    await cache.create("ada", session_id="s1", state={"poison": 1, "good": 1})
    assert (await run("sessions", "show", "s1", "--json")).json["session"]["refused"] == 0
    await drain(urls)
    seen = (await run("sessions", "show", "s1", "--json")).json["session"]
    assert (seen["dirty"], seen["refused"]) == (True, 1)
    assert "see `sessioncache dead list`" in (await run("sessions", "show", "s1")).out


@pytest.mark.parametrize("words", [("db", "check"), ("sessions", "list")], ids=" ".join)
def test_a_data_folder_that_cannot_be_used_is_exit_2(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([*words, "--data-dir", str(tmp_path / "file" / "folder")]) == 2
    assert "the data folder cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["redis://:secret@127.0.0.1:1/?none=1", "http://:secret@127.0.0.1:1/"])
def test_a_redis_url_that_is_none_is_exit_2(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flush", "--redis", url, "--database", "sqlite:////nowhere/state.db"]) == 2
    said = capsys.readouterr()
    assert "the Redis URL" in said.err
    assert "secret" not in said.out + said.err


async def test_an_installation_of_its_own_prefix_and_buckets_is_served_by_all_commands(urls: Urls, run: Run) -> None:
    given = ("--prefix", "elsewhere", "--buckets", "16")
    async with connect(urls, prefix="elsewhere", buckets=16) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1})
        assert '"s1"' in (await run("sessions", "list", *given, "--json")).out
        with start_worker(urls, "--once", *given) as worker:
            assert worker.finish()[0] == 0
        assert (await run("flush", *given, "--timeout", "0")).code == 0
        assert '"dirty_scopes": 0' in (await run("top", *given, "--json", "--count", "1")).out
        assert "16 of 16" in (await run("doctor", *given)).out


@pytest.mark.parametrize("prefix", ["", "{b}"])
def test_a_prefix_that_is_none_is_wrong_use(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["flush", "--prefix", prefix])
    assert ended.value.code == 2
    assert "braces" in capsys.readouterr().err


@pytest.fixture
def bystander(postgresql_url: str) -> str:
    """The URL of a database for a role that may connect, and no more."""
    role = "sessioncache_bystander"
    execute(postgresql_url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    execute(postgresql_url, f"DROP ROLE IF EXISTS {role}")
    execute(postgresql_url, f"CREATE ROLE {role} LOGIN")
    return postgresql_url.replace("postgres@", f"{role}@")


@pytest.mark.parametrize(("right", "state"), [("REVOKE USAGE", "3F000"), ("GRANT USAGE", "42501")])
async def test_an_upgrade_without_rights_is_exit_3_and_tells_of_the_rights(
    bystander: str, postgresql_url: str, right: str, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whom = "FROM PUBLIC" if right.startswith("REVOKE") else "TO PUBLIC"
    execute(postgresql_url, f"{right} ON SCHEMA public {whom}")
    code = await asyncio.to_thread(main, ["db", "upgrade", "--database", bystander, "--json"])
    said = capsys.readouterr()
    assert code == 3
    assert "needs CREATE on the schema" in said.err
    assert state in said.err
    assert "run `sessioncache db upgrade`" not in said.err
    assert "Traceback" not in said.err


async def test_an_upgrade_tells_of_a_role_without_rights_on_new_tables(
    bystander: str, postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    upgrade = ["db", "upgrade", "--database", postgresql_url]
    assert await asyncio.to_thread(main, upgrade) == 0
    assert "GRANT" not in capsys.readouterr().out
    execute(postgresql_url, "GRANT SELECT, INSERT ON sessioncache_state TO sessioncache_bystander")
    assert await asyncio.to_thread(main, upgrade) == 0
    said = capsys.readouterr().out
    execute(postgresql_url, re.findall(r"GRANT .* TO sessioncache_bystander", said)[0])
    assert await asyncio.to_thread(main, [*upgrade, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missing_grants"] == []


def test_the_demo_keeps_to_the_prefix_and_the_buckets_of_an_installation(valkey_url: str, sqlite_url: str) -> None:
    """On tiers that were set up otherwise than by default: every key of the demo is one of the installation."""
    urls, options = Urls(valkey_url, sqlite_url), ("--prefix", "shop", "--buckets", "8")
    upgraded = subprocess.run([PROGRAM, "db", "upgrade", "--database", sqlite_url], capture_output=True, check=False)
    assert upgraded.returncode == 0, upgraded.stderr
    ran = program(urls, "demo", "--processes", "2", "--worker-kills", "1", *options)
    out, err = ran.communicate(timeout=stretched(60))
    assert ran.returncode == 0, (out, err)
    with raw(valkey_url) as client:
        assert {key.split(b":")[0] for key in client.scan_iter(count=1000)} == {b"shop"}
        assert client.hget("shop:layout", "buckets") == b"8"
