"""How a worker ends: within its grace time whatever the database does, and with what exit code (R9, R10)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sessioncache import DurableTierUnavailableError
from tests.conftest import StartPostgreSQL
from tests.helpers import ROOT, Urls, claims, connect, dirty, drain, execute, open_worker, start_worker, upgrade
from tests.waiting import stretched, wait_until, wait_until_async

GRACE = 3.0


@pytest.mark.alone
async def test_r9_a_worker_whose_database_hangs_ends_within_its_grace_time_and_gives_back_its_claims(
    valkey_url: str, start_postgresql: StartPostgreSQL
) -> None:
    server = start_postgresql()
    urls = Urls(valkey_url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache:
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        with start_worker(urls, "--flush-delay", "0.05", "--grace", str(GRACE), "--lease", "60") as worker:
            await cache.flush(30)
            server.pause()
            await made.set("a", 1)
            await wait_until_async(lambda: claims(valkey_url), 20, "the worker has claimed it")
            began = time.monotonic()
            worker.send(signal.SIGTERM)
            code, _, told = await asyncio.to_thread(worker.finish, 30)
            took = time.monotonic() - began
        server.resume()
        assert code == 1
        assert "not finished within 3 s" in told
        assert took < GRACE + 1.5
        assert claims(valkey_url) == []
        async with asyncio.timeout(stretched(20)), open_worker(urls) as other:
            await other.flush_once()
    assert dirty(valkey_url) == 0


@pytest.mark.alone
async def test_r9_a_worker_of_a_program_ends_within_its_grace_time_too(
    valkey_url: str, start_postgresql: StartPostgreSQL
) -> None:
    server = start_postgresql()
    urls = Urls(valkey_url, server.url())
    await upgrade(urls.database)
    async with connect(urls) as cache, open_worker(urls, flush_delay=0.05, grace=1.0, lease=60) as worker:
        task = asyncio.ensure_future(worker.run())
        made = await cache.create("ada", session_id="s1", state={"a": 0})
        await cache.flush(30)
        server.pause()
        await made.set("a", 1)
        await wait_until_async(lambda: len(worker.flusher.held_claims) > 0, 20, "the worker has claimed it")
        worker.stop()
        async with asyncio.timeout(GRACE):
            await task
        assert worker.unfinished
        assert claims(valkey_url) == []
        server.resume()
        async with open_worker(urls) as other:
            await other.flush_once()


@asynccontextmanager
async def refusing_logins() -> AsyncIterator[int]:
    """The port of something that answers as PostgreSQL does to a wrong password."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length == 8:  # it asks for TLS
            await reader.readexactly(4)
            writer.write(b"N")
            length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length - 4)
        fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("options", [(), ("--once",)])
async def test_a_worker_whose_database_refuses_the_password_exits_2(valkey_url: str, options: tuple[str, ...]) -> None:
    async with refusing_logins() as port:
        urls = Urls(valkey_url, f"postgresql://ada:s3cret@127.0.0.1:{port}/state")
        with start_worker(urls, *options) as worker:
            code, _, told = await asyncio.to_thread(worker.finish)
    assert code == 2, told
    assert "it refuses the user name or password" in told
    assert "s3cret" not in told


async def test_once_exits_1_while_there_are_dead_letters_of_earlier_times(valkey_url: str, sqlite_url: str) -> None:
    urls = Urls(valkey_url, sqlite_url)
    await upgrade(sqlite_url)
    when = "BEFORE INSERT ON sessioncache_state WHEN NEW.key = 'bad'"
    execute(sqlite_url, f"CREATE TRIGGER bad {when} BEGIN SELECT RAISE(ABORT, 'bad'); END")
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"bad": 1})
        async with open_worker(urls, max_attempts=1) as first:
            await first.flush_once()
    for _ in range(2):
        with start_worker(urls, "--once") as worker:
            code, _, told = await asyncio.to_thread(worker.finish)
        assert (code, "dead list" in told) == (1, True), told


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The end of a pipe that takes nothing more, since nobody reads it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_r9_a_worker_whose_log_nobody_reads_ends_within_its_grace_time(sqlite_url: str, full_pipe: int) -> None:
    command = [sys.executable, "-m", "sessioncache_worker", "--grace", "0.5"]
    nowhere = ["--redis", "unix:///nowhere/redis.sock", "--database", sqlite_url]
    with subprocess.Popen([*command, *nowhere], cwd=ROOT, stderr=full_pipe) as worker:
        try:
            held_up = Path(f"/proc/{worker.pid}/wchan")
            wait_until(lambda: "pipe" in held_up.read_text(), 20, "it waits for whoever reads its log")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(stretched(10)) == -signal.SIGALRM
        finally:
            worker.kill()


async def test_once_gives_up_what_another_worker_holds_and_cannot_flush(urls: Urls) -> None:
    async with connect(urls) as cache, open_worker(urls, lease=300.0) as holder, open_worker(urls, lease=0.1) as once:
        await cache.create("ada", session_id="s", state={"a": 1})
        await holder._check()
        assert await holder._claim(list(holder._buckets), everything=True)
        async with asyncio.timeout(stretched(10)):
            with pytest.raises(DurableTierUnavailableError, match="another worker holds 1 scope that it cannot flush"):
                await once.flush_once()


@pytest.mark.parametrize("command", ["worker", "flush"])
async def test_a_database_that_is_away_is_told_where_nothing_is_dirty(urls: Urls, command: str) -> None:
    await drain(urls)  # which registers all buckets
    given = ["--redis", urls.redis, "--database", "postgresql://127.0.0.1:1/state"]
    run = (
        [sys.executable, "-m", "sessioncache_worker", "--once"]
        if command == "worker"
        else [str(Path(sys.executable).parent / "sessioncache"), "flush"]
    )
    done = await asyncio.to_thread(
        subprocess.run, [*run, *given], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert "nobody listens there" in done.stderr
