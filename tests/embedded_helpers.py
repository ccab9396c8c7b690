"""Processes that use a data folder, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sessioncache.embedded import folder
from sessioncache.embedded.locks import FileLock
from tests.servers import SLOW
from tests.waiting import stretched, wait_until

# Opens the folder, tells what it got, and stays a user until its standard input ends.
USER = """
import asyncio, json, os, sys
from sessioncache.embedded import Embedded

async def main():
    embedded = await Embedded.open(sys.argv[1], start_worker=False)
    print(json.dumps({"redis": embedded.redis_url, "database": embedded.database_url}), flush=True)
    sys.stdin.read()
    await embedded.aclose()

asyncio.run(main())
"""

# Opens the folder and forks.  The parent ends when it is told a line; the child stays until standard input ends, which
# both have: it does not read while the parent waits, lest it takes the parent's line.
FORKING_USER = """
import asyncio, os, sys, time
from sessioncache.embedded import Embedded

embedded = asyncio.run(Embedded.open(sys.argv[1], start_worker=False))
parent = os.getpid()
if os.fork() == 0:
    if sys.argv[2] == "closes":
        asyncio.run(embedded.aclose())
    print("child", flush=True)
    while os.getppid() == parent:
        time.sleep(0.01)
    sys.stdin.read()
    os._exit(0)
sys.stdin.readline()
"""

# Opens the folder, writes, leaves, waits about as long as the server lingers; prints the number of acknowledged writes.
COMING_AND_GOING = """
import asyncio, random, sys, redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sessioncache.embedded import Embedded

async def main():
    done = 0
    for _ in range(int(sys.argv[2])):
        embedded = await Embedded.open(sys.argv[1], start_worker=False)
        client = redis.Redis.from_url(embedded.redis_url, retry=Retry(NoBackoff(), 0), socket_timeout=60)
        for _ in range(20):
            client.incr("counter")
            done += 1
        client.close()
        await embedded.aclose()
        await asyncio.sleep(random.uniform(0.9, 1.4))
    print(done)

asyncio.run(main())
"""

# Says when it starts and is told to end; ends only when it may, and tells whether the server was still there then.
WORKER = """
import os, signal, sys, time
from sessioncache.embedded import folder

def say(what):
    with open("worker.said", "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def end(*_):
    say("told")
    while os.path.exists("worker.wait"):
        time.sleep(0.01)
    say("ended" if folder.answers(folder.SOCKET) else "orphaned")
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
say(" ".join(sys.argv[1:]))
while True:
    time.sleep(1)
"""


def held(path: Path, name: str) -> bool:
    """Whether the process behind a lock of the folder lives."""
    if not (path / name).exists():
        return False
    lock = FileLock(path / name)
    try:
        return lock.held_exclusively()
    finally:
        lock.close()


def closed(path: Path) -> bool:
    return not any(held(path, name) for name in (folder.KEEPER_LOCK, folder.SERVER_LOCK, folder.WORKER_LOCK))


def wait_closed(path: Path) -> None:
    wait_until(lambda: closed(path), 15, f"keeper, server and worker of {path.name} have ended")


def holder(path: Path, name: str) -> int:
    """The process id of the keeper, server or worker, which must live."""
    assert held(path, name)
    return int((path / name).read_text())


def kill(path: Path, name: str) -> None:
    os.kill(holder(path, name), signal.SIGKILL)


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A client that never repeats a command."""
    client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True, **SLOW)
    try:
        yield client
    finally:
        client.close()


def run_id(url: str) -> str:
    with connected(url) as client:
        return str(client.info("server")["run_id"])


def said(path: Path, what: str) -> list[int]:
    """The ids of the workers that said something beginning with `what`."""
    try:
        lines = (path / "worker.said").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [int(line.split()[-1]) for line in lines if line.startswith(what)]


class User:
    """A process that uses a folder."""

    def __init__(self, path: Path, program: str = USER, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def redis_url(self) -> str:
        return str(json.loads(self.told())["redis"])

    def leave(self) -> None:
        self.process.communicate(timeout=stretched(20))
        assert self.process.returncode == 0

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=stretched(20))
