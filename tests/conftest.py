"""Fixtures: servers for the session, a clean state for each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from sessioncache_worker import worker

from sessioncache.primitives import deadline
from tests.keys import check_keys
from tests.servers import PostgreSQLServer, RedisKind, RedisServer, ServerMissingError
from tests.waiting import patience

ROOT = Path(__file__).resolve().parent.parent
RECORDED_SESSIONS = ROOT.parent / "shared" / "data" / "airline-agent-sessions.jsonl.gz"

# How fast examples are made and tried says how busy the machine is, and nothing about what is tested.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

_Made = TypeVar("_Made", RedisServer, PostgreSQLServer)


class StartRedis(Protocol):
    """Starts a server for one test; it is ended after it."""

    def __call__(self, kind: RedisKind = "valkey", *, tcp: bool = False, **config: Any) -> RedisServer: ...


class StartPostgreSQL(Protocol):
    """Starts a server for one test; it is ended after it."""

    def __call__(self, *, tcp: bool = False, **config: Any) -> PostgreSQLServer: ...


_SERVERS_OF_THE_SYSTEM = ("postgresql", "redis_server", "redis-server", "redis_postgresql")
"""What fixtures and parameters are called that need a server which no Python package brings."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--from-packages``: only tests whose servers come from Python packages (Valkey and SQLite)."""
    parser.addoption(
        "--from-packages", action="store_true", help="leave out tests that need redis-server or PostgreSQL"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a newcomer's machine has no servers for."""
    if not config.getoption("--from-packages"):
        return
    left_out = [item for item in items if _needs_the_system(item)]
    items[:] = [item for item in items if item not in set(left_out)]
    config.hook.pytest_deselected(items=left_out)


def _needs_the_system(item: pytest.Item) -> bool:
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    parameters = [str(value) for value in getattr(getattr(item, "callspec", None), "params", {}).values()]
    return any(name in told for name in _SERVERS_OF_THE_SYSTEM for told in (*fixtures, *parameters, item.path.stem))


def pytest_configure(config: pytest.Config) -> None:
    """A test run that is asked to end takes its servers with it."""
    config.addinivalue_line("markers", "foreign_keys: leaves keys in Redis that are not of sessioncache")
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def missing(what: str) -> NoReturn:
    """Skip the test for want of `what`; on CI, where everything has to be there, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"missing on CI: {what}", pytrace=False)
    pytest.skip(what)


def _make(make: Callable[[], _Made]) -> _Made:
    try:
        return make()
    except ServerMissingError as error:
        missing(str(error))


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """One Valkey server for the whole run, flushed by `valkey_url` and `redis_url`."""
    server = _make(lambda: RedisServer("valkey"))
    yield server.start()
    server.destroy()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis server for the whole run, flushed by `redis_url`."""
    server = _make(lambda: RedisServer("redis"))
    yield server.start()
    server.destroy()


@pytest.fixture(params=["valkey", "redis_server"])
def redis_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty Valkey, and in turn of an empty Redis."""
    return _flushed(request.getfixturevalue(request.param))


@pytest.fixture
def valkey_url(valkey: RedisServer) -> str:
    """The URL of an empty Valkey."""
    return _flushed(valkey)


def _flushed(server: RedisServer) -> str:
    with server.client() as client:
        client.flushall()
    return server.url


@pytest.fixture(autouse=True)
def keys_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test with `valkey_url` or `redis_url`, every key of the server is accounted for."""
    server = _server_of(request)
    yield
    if server is not None:
        with server.client() as client:
            check_keys(client, foreign=request.node.get_closest_marker("foreign_keys") is not None)


def _server_of(request: pytest.FixtureRequest) -> RedisServer | None:
    name = None
    if "redis_url" in request.fixturenames:
        request.getfixturevalue("redis_url")
        name = request.node.callspec.params["redis_url"]
    elif "valkey_url" in request.fixturenames:
        request.getfixturevalue("valkey_url")
        name = "valkey"
    server: RedisServer | None = request.getfixturevalue(name) if name else None
    return server


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing depends on how fast the machine is, but in tests that are marked `alone`."""
    is_alone = request.node.get_closest_marker("alone") is not None
    if not is_alone:
        monkeypatch.setattr(deadline, "DEFAULT_TIMEOUT", 60.0)
        monkeypatch.setattr(worker, "_TIMEOUT", 60.0)
    with patience(patient=not is_alone):
        yield


@pytest.fixture
def start_redis() -> Iterator[StartRedis]:
    """Starts servers that a test may stop, kill, pause and restart."""
    servers: list[RedisServer] = []

    def start(kind: RedisKind = "valkey", *, tcp: bool = False, **config: Any) -> RedisServer:
        servers.append(_make(lambda: RedisServer(kind, tcp=tcp, **config)))
        return servers[-1].start()

    yield start
    for server in servers:
        server.destroy()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    """One PostgreSQL server for the whole run, on a Unix socket, without fsync."""
    server = _make(PostgreSQLServer)
    yield server.start()
    server.destroy()


@pytest.fixture
def start_postgresql() -> Iterator[StartPostgreSQL]:
    """Starts servers that a test may stop, kill, pause and restart."""
    servers: list[PostgreSQLServer] = []

    def start(*, tcp: bool = False, **config: Any) -> PostgreSQLServer:
        servers.append(_make(lambda: PostgreSQLServer(tcp=tcp, **config)))
        return servers[-1].start()

    yield start
    for server in servers:
        server.destroy()


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server: PostgreSQLServer) -> str:
    """The name of one database for the whole run, emptied by `postgresql_url`."""
    return postgresql_server.create_database()


@pytest.fixture
def postgresql_url(postgresql_server: PostgreSQLServer, postgresql_database: str) -> str:
    """The URL of an empty PostgreSQL database."""
    postgresql_server.empty_database(postgresql_database)
    return postgresql_server.url(postgresql_database)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty SQLite database, and in turn of an empty PostgreSQL database."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def recorded_sessions() -> Path:
    """The recorded agent sessions that lie beside the checkout; skips where they do not."""
    if not RECORDED_SESSIONS.exists():
        pytest.skip("the recorded sessions are not beside this checkout")
    return RECORDED_SESSIONS
