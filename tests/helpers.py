"""What tests of the cache and the worker share: open caches, worker and agent processes, both tiers looked at raw."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import psycopg
import redis
from sessioncache_worker import FlushWorker

from sessioncache import SessionCache
from sessioncache.durable.engine import create_engine
from sessioncache.durable.migrate import upgrade_schema
from sessioncache.durable.tier import DurableTier
from sessioncache.hot.client import HotClient
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, app_ref, session_ref, user_ref
from sessioncache.settings import MAX_CALL_KEYS, WorkerSettings
from tests.keys import check_keys
from tests.servers import SLOW
from tests.waiting import stretched, wait_until

ROOT = Path(__file__).resolve().parent.parent
BUCKETS = 256


class Urls(NamedTuple):
    """Both tiers of one installation."""

    redis: str
    database: str


# ---- the library in this process

_new_file: list[bytes] = []
"""What an SQLite file holds that has our schema and no rows, once one was made."""


async def upgrade(database_url: str) -> None:
    """Give a database our schema; a new SQLite file gets it as a copy of the first one's, which is much faster."""
    new = _is_new_file(database_url)
    if new and _new_file:
        _sqlite_file(database_url).write_bytes(_new_file[0])
        return
    await _migrate(database_url)
    if new:
        _new_file.append(_sqlite_file(database_url).read_bytes())


def _is_new_file(database_url: str) -> bool:
    return database_url.startswith("sqlite") and not _sqlite_file(database_url).exists()


def _sqlite_file(database_url: str) -> Path:
    return Path(database_url.removeprefix("sqlite:///"))


async def _migrate(database_url: str) -> None:
    engine = create_engine(database_url)
    try:
        await upgrade_schema(engine)
    finally:
        await engine.dispose()


def connect(urls: Urls, *, app: str = "app", **settings: Any) -> Any:
    """A cache of the tests' app, to be awaited or used as a context manager; patient unless it is said how much."""
    return SessionCache.connect(urls.redis, urls.database, app=app, **{"timeout": stretched(5.0), **settings})


@asynccontextmanager
async def open_worker(urls: Urls, *, retention: float | None = None, **settings: Any) -> AsyncIterator[FlushWorker]:
    """A worker of this process that does nothing until it is told to."""
    options = WorkerSettings.of(settings)
    extra = {} if retention is None else {"retention": retention}
    durable = DurableTier.connect(urls.database, lock_timeout=options.lease / 2, **extra)
    worker = FlushWorker.over(HotClient.from_url(urls.redis), durable, options)
    try:
        yield worker
    finally:
        await worker.aclose()


async def drain(urls: Urls) -> int:
    """Flush all that is dirty; the number of rows."""
    async with open_worker(urls) as worker:
        return await worker.flush_once()


async def purge_all(urls: Urls) -> int:
    """Purge every tombstone, as if all of them had been flushed long ago; the number of rows."""
    old = "2020-01-01 00:00:00.000000"
    execute(urls.database, "UPDATE sessioncache_state SET updated_at = ?", old)
    execute(urls.database, "UPDATE sessioncache_session SET flushed_at = ?", old)
    async with open_worker(urls) as worker:
        return await worker._janitor.purge()


async def settle(urls: Urls) -> None:
    """Flush everything and evict all that is clean; every key is accounted for."""
    await drain(urls)
    with raw(urls.redis) as client:
        check_keys(client)
    assert dirty(urls.redis) == 0
    evict(urls.redis)


class Stall:
    """An asynchronous method that waits at its door: `reached` is set on entry, `release` lets it in."""

    def __init__(self, target: object, name: str) -> None:
        self._inner: Callable[..., Any] = getattr(target, name)
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        setattr(target, name, self)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.reached.set()
        await self.release.wait()
        return await self._inner(*args, **kwargs)


class HeldAnswer:
    """An asynchronous method whose next answer is held up: `worked` is set once it is there, `release` lets it in."""

    def __init__(self, target: object, name: str) -> None:
        self._inner: Callable[..., Any] = getattr(target, name)
        self.worked = asyncio.Event()
        self.release = asyncio.Event()
        setattr(target, name, self)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = await self._inner(*args, **kwargs)
        if not self.worked.is_set():
            self.worked.set()
            await self.release.wait()
        return answer


# ---- the durable tier, raw


def fetch(database_url: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of one query (``?`` for values) by the bare driver."""
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()
    with psycopg.connect(database_url, autocommit=True) as server:
        return server.execute(query.replace("?", "%s").encode(), values).fetchall()


def execute(database_url: str, statement: str, *values: object) -> None:
    """Change something in the database by the bare driver."""
    if database_url.startswith("sqlite"):
        connection = sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
        try:
            connection.execute(statement, values)
        finally:
            connection.close()
        return
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute(statement.replace("?", "%s").encode(), values)


def session(user: str, session_id: str, app: str = "app") -> ScopeRef:
    """A session's scope of the tests' app."""
    return session_ref(BUCKETS, "", app, user, session_id)


def user(name: str, app: str = "app") -> ScopeRef:
    """A user's scope of the tests' app."""
    return user_ref(BUCKETS, "", app, name)


def app(name: str = "app") -> ScopeRef:
    """The scope of an app."""
    return app_ref(BUCKETS, "", name)


_HEADS = {ScopeKind.SESSION: "session", ScopeKind.USER: "user_scope", ScopeKind.APP: "app_scope"}


def head_row(database_url: str, scope: ScopeRef) -> tuple[int, int, bool] | None:
    """Revision, last cleared and deleted of a scope's row in SQL; None where there is none."""
    query = f"SELECT revision, cleared, deleted FROM sessioncache_{_HEADS[scope.kind]} WHERE scope_id = ?"
    rows = fetch(database_url, query, scope.id)
    return (rows[0][0], rows[0][1], bool(rows[0][2])) if rows else None


def stored_values(database_url: str, scope: ScopeRef) -> dict[str, Any] | None:
    """The living values of a scope, decoded from the rows; None where SQL has no living head of it."""
    spaces = stored_namespaces(database_url, scope)
    return None if spaces is None else spaces.get("", {})


def stored_namespaces(database_url: str, scope: ScopeRef) -> dict[str, dict[str, Any]] | None:
    """The living values of a session by namespace, the plain keys under ``""``; None where SQL has no living head."""
    head = head_row(database_url, scope)
    if head is None or head[2]:
        return None
    query = "SELECT namespace, key, value, revision, deleted FROM sessioncache_state WHERE scope_id = ?"
    spaces: dict[str, dict[str, Any]] = {}
    birth = fetch(database_url, f"SELECT birth FROM sessioncache_{_HEADS[scope.kind]} WHERE scope_id = ?", scope.id)
    own = "SELECT namespace, cleared FROM sessioncache_namespace WHERE scope_id = ?"
    dead = {
        "": head[1],
        **{name: max(birth[0][0] - 1, cleared) for name, cleared in fetch(database_url, own, scope.id)},
    }
    for namespace, key, value, revision, deleted in fetch(database_url, query, scope.id):
        if not deleted and revision > dead.get(namespace, birth[0][0] - 1):
            spaces.setdefault(namespace, {})[key] = json.loads(value)
    return spaces


# ---- the hot tier, raw


@contextmanager
def raw(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client."""
    client = redis.Redis.from_url(redis_url, **SLOW)
    try:
        yield client
    finally:
        client.close()


def scope_key(scope: ScopeRef) -> str:
    """The name of a scope's hash."""
    return f"sessioncache:{{{scope.bucket}}}:h:{scope.member}"


def in_calls(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Many keys, in as few calls as may change them."""
    for start in range(0, len(values), MAX_CALL_KEYS):
        yield dict(islice(values.items(), start, start + MAX_CALL_KEYS))


def evict(redis_url: str) -> int:
    """Drop every hash that has a TTL, as ``volatile-lru`` would; how many."""
    with raw(redis_url) as client:
        clean = [key for key in client.scan_iter(match="sessioncache:*:h:*", count=1000) if client.pttl(key) >= 0]
        return int(client.delete(*clean)) if clean else 0


def dirty(redis_url: str) -> int:
    """How many scopes are dirty."""
    with raw(redis_url) as client:
        return sum(int(client.zcard(key)) for key in client.scan_iter(match="sessioncache:*:dirty", count=1000))


# ---- processes


class Process:
    """A Python process of ours, with pipes; ended by its own handle."""

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.send_signal(signal.SIGCONT)
        self._popen.communicate()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._popen.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """Wait for the end; the exit code."""
        return self._popen.wait(seconds)

    def finish(self, seconds: float = 60) -> tuple[int, str, str]:
        """Wait for the end; exit code, stdout, stderr."""
        out, err = self._popen.communicate(timeout=seconds)
        return self._popen.returncode, out, err

    def say(self, line: str) -> None:
        """Write a line to the process."""
        pipe = self._pipe(self._popen.stdin)
        pipe.write(line + "\n")
        pipe.flush()

    def hear(self) -> str:
        """The next line that the process writes; fails with its stderr where it ended instead."""
        line = self._pipe(self._popen.stdout).readline()
        if not line:
            raise RuntimeError(f"the process ended:\n{self.finish()[2]}")
        return line.rstrip("\n")

    def complained(self) -> str:
        """What it has written to stderr since it was last asked."""
        descriptor = self._pipe(self._popen.stderr).fileno()
        os.set_blocking(descriptor, False)
        try:
            return os.read(descriptor, 1024 * 1024).decode()
        except BlockingIOError:
            return ""

    def wait_until_stopped(self, seconds: float = 20) -> None:
        """Wait until the process has been stopped by SIGSTOP, as it may do itself."""
        wait_until(lambda: self._state() == "T", seconds, "the process is stopped")

    def _state(self) -> str:
        if self._popen.poll() is not None:
            raise RuntimeError(f"the process ended:\n{self.finish()[2]}")
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def start_worker(urls: Urls, *options: str) -> Process:
    """A worker process; a context manager that kills it."""
    return Process("sessioncache_worker", "--redis", urls.redis, "--database", urls.database, *options)


def stop_worker(urls: Urls, worker: Process) -> None:
    """End a worker in good order, once it has begun to work."""
    wait_until(lambda: worker.pid in beating(urls.redis), 20, "the worker has a heartbeat")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.finish()[2]


def beating(redis_url: str) -> set[int]:
    """The process ids of the workers that have a heartbeat."""
    return {
        int(json.loads(value.split(b"|", 1)[1])["pid"])
        for name, value in _controls(redis_url)
        if name.startswith(b"w:")
    }


def claims(redis_url: str) -> list[bytes]:
    """The scopes that workers have claimed."""
    return [name[2:] for name, _ in _controls(redis_url) if name.startswith(b"c:")]


def _controls(redis_url: str) -> Iterator[tuple[Any, Any]]:
    with raw(redis_url) as client:
        for key in client.scan_iter(match="sessioncache:*:ctl", count=1000):
            yield from client.hgetall(key).items()


def start_stopping_worker(urls: Urls, stop_at: str, *options: str) -> Process:
    """A worker process that stops itself with SIGSTOP at a point (see tests/races/stopping_worker.py)."""
    module, tiers = "tests.races.stopping_worker", ("--redis", urls.redis, "--database", urls.database)
    return Process(module, *tiers, *options, env={"STOP_AT": stop_at})


class Agent(Process):
    """Another process with a cache of its own (see tests/races/agent.py): told what to do line by line."""

    def __init__(self, urls: Urls, **settings: Any) -> None:
        super().__init__("tests.races.agent", json.dumps([urls.redis, urls.database, settings]))

    def begin(self, call: str, *arguments: Any, **named: Any) -> None:
        """Ask for something without waiting for it."""
        self.say(json.dumps([call, arguments, named]))

    def answer(self) -> Any:
        """The result of what was asked for first; an error comes as {"error": its class}."""
        return json.loads(self.hear())

    def do(self, call: str, *arguments: Any, **named: Any) -> Any:
        """Ask and wait."""
        self.begin(call, *arguments, **named)
        return self.answer()
