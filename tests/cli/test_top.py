"""The command `top` as its users run it: a screen, lines, JSON; with and without the database and Redis."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sessioncache.cli import main
from tests.conftest import StartRedis
from tests.helpers import Urls, connect, start_worker, stop_worker, upgrade
from tests.waiting import stretched, wait_until

COMMAND = str(Path(sys.executable).parent / "sessioncache")
AWAY = "postgresql://nobody@127.0.0.1:1/nothing"


Capture = pytest.CaptureFixture[str]


@pytest.fixture
async def urls(valkey_url: str, sqlite_url: str) -> Urls:
    """Both tiers, with the schema, empty."""
    await upgrade(sqlite_url)
    return Urls(valkey_url, sqlite_url)


def run(redis_url: str, *words: str) -> int:
    """``sessioncache top`` in this process, the database being away; its exit code."""
    return main(["top", "--redis", redis_url, "--database", AWAY, *words])


@contextmanager
def running(redis_url: str, *words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """``sessioncache top`` that goes on; ended after the block."""
    command = [COMMAND, "top", "--redis", redis_url, *words]
    with subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_json_is_one_object_a_line_and_needs_no_database(urls: Urls, capsys: Capture) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1", state={"a": 1, "user:b": 2})
        with start_worker(urls, "--flush-delay", "0.05") as worker:
            await cache.flush(60)
            words = ("--json", "--interval", "0.1", "--count", "2")
            assert await asyncio.to_thread(run, urls.redis, *words) == 0
            stop_worker(urls, worker)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["rows"], first["dirty_scopes"], first["oldest_age"], first["per_second"]) == (2, 0, None, None)
    assert (first["workers"][0]["pid"], first["workers"][0]["alive"]) == (worker.pid, True)
    assert (second["per_second"]["rows"], second["away"]) == (0.0, None)


def test_lines_where_there_is_no_terminal(valkey_url: str, capsys: Capture) -> None:
    assert run(valkey_url, "--interval", "0.1", "--count", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("workers 0 of 0 alive") for line in lines] == [1, 1, 1]


def test_a_reader_of_lines_that_goes_away_ends_it_quietly(valkey_url: str) -> None:
    with running(valkey_url, "--interval", "0.1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(stretched(20)) == 141
        assert process.stderr.read() == b""


def test_an_interrupt_ends_it_quietly(valkey_url: str) -> None:
    with running(valkey_url) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(stretched(20)) == 130
        assert process.communicate()[1] == b""


def test_redis_away_at_the_start_is_told_with_exit_code_3(capsys: Capture) -> None:
    assert run("redis://:secret@127.0.0.1:1/0", "--json") == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["kind"] == "HotTierUnavailableError"
    assert "Redis cannot be reached" in said.err
    assert "secret" not in said.err


def test_a_database_without_redis_is_a_wrong_configuration(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESSIONCACHE_REDIS_URL", raising=False)
    assert main(["top", "--database", AWAY]) == 2
    assert "SESSIONCACHE_REDIS_URL" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--interval", "0"), ("--count", "0"), ("--interval", "nan")])
def test_wrong_options_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as told:
        run("redis://127.0.0.1:1/0", *words)
    assert told.value.code == 2


def test_it_goes_on_when_redis_goes_away_and_comes_back(start_redis: StartRedis) -> None:
    server = start_redis("valkey")
    with running(server.url, "--json", "--interval", "0.1") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["away"] is None
        server.kill()
        until_away(process, gone=True)
        server.start()
        until_away(process, gone=False)


def until_away(process: subprocess.Popen[bytes], *, gone: bool) -> None:
    """Read lines until one says that Redis is away, or is not."""
    assert process.stdout is not None
    for _ in range(200):
        if (json.loads(process.stdout.readline())["away"] is not None) is gone:
            return
    pytest.fail("200 lines said nothing of it")


class Terminal:
    """A terminal that ``sessioncache top`` draws on."""

    def __init__(self, redis_url: str, *words: str, kind: str = "xterm") -> None:
        self.keyboard, self.theirs = pty.openpty()
        os.set_blocking(self.keyboard, False)
        self.drawn = b""
        self.modes = self._modes()
        command = [COMMAND, "top", "--redis", redis_url, "--interval", "0.1", *words]
        env = {**os.environ, "TERM": kind, "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(command, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, env=env)

    def shows(self, text: str) -> bool:
        """Whether a text has been drawn."""
        with suppress(BlockingIOError):
            while part := os.read(self.keyboard, 65_536):  # a terminal gives a few thousand bytes at a time
                self.drawn += part
        return text.encode() in self.drawn

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self.keyboard, key)

    def is_as_before(self) -> bool:
        """Whether the keyboard is in the mode that it was in."""
        return self._modes() == self.modes

    def _modes(self) -> list[Any]:
        return termios.tcgetattr(self.theirs)

    def close(self) -> None:
        """End the command, close the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)
        os.close(self.theirs)


@pytest.fixture
def terminal(start_redis: StartRedis) -> Iterator[tuple[Terminal, Any]]:
    """``sessioncache top`` on a terminal, over a server of its own."""
    server = start_redis("valkey")
    terminal = Terminal(server.url)
    yield terminal, server
    terminal.close()


def test_on_a_terminal_it_draws_a_screen_survives_redis_and_ends_with_q(terminal: tuple[Terminal, Any]) -> None:
    screen, server = terminal
    wait_until(lambda: screen.shows("nothing waits"), 20, "the screen is drawn")
    wait_until(lambda: screen.shows("rows/s"), 20, "it is drawn anew")
    assert not screen.is_as_before()
    server.kill()
    wait_until(lambda: screen.shows("Redis is away"), 20, "the screen says so")
    server.start()
    screen.press(b"q")
    assert screen.process.wait(stretched(20)) == 0
    assert screen.shows("\x1b[?1049l"), "the screen of before is back"
    assert screen.is_as_before()


def test_a_terminal_that_cannot_be_drawn_on_gets_lines(valkey_url: str) -> None:
    terminal = Terminal(valkey_url, "--count", "2", kind="dumb")
    try:
        assert terminal.process.wait(stretched(20)) == 0
        assert terminal.shows("workers 0 of 0 alive")
        assert b"\x1b" not in terminal.drawn
        assert len(terminal.drawn.splitlines()) == 2
    finally:
        terminal.close()


def test_an_interrupt_leaves_the_terminal_as_it_was(terminal: tuple[Terminal, Any]) -> None:
    screen, server = terminal
    wait_until(lambda: screen.shows("nothing waits"), 20, "the screen is drawn")
    server.pause()
    screen.process.send_signal(signal.SIGINT)
    assert screen.process.wait(stretched(20)) == 130
    assert screen.shows("\x1b[?1049l"), "the screen of before is back"
    assert screen.is_as_before()
