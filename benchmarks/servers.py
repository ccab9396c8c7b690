"""The servers that benchmarks start for themselves: on the loopback interface, in folders of their own, fsync on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.servers import PostgreSQLServer, RedisKind, RedisServer, ServerMissingError

Missing = ServerMissingError

versions: dict[str, str] = {}
"""Of the servers that were started, for the results."""


@contextmanager
def redis_server(kind: RedisKind = "valkey") -> Iterator[RedisServer]:
    """A server over TCP that keeps nothing on disk."""
    server = RedisServer(kind, tcp=True).start()
    with server.client() as client:
        versions[f"machine_{kind}"] = str(client.info("server")[f"{kind}_version"])
    try:
        yield server
    finally:
        server.destroy()


@contextmanager
def postgresql() -> Iterator[PostgreSQLServer]:
    """A server over TCP with its usual durable settings; Missing where there is none."""
    server = PostgreSQLServer(tcp=True, fsync="on", shared_buffers="256MB", max_connections=300).start()
    with psycopg.connect(server.url()) as connection:
        versions["machine_postgresql"] = connection.info.parameter_status("server_version") or ""
    try:
        yield server
    finally:
        server.destroy()


@contextmanager
def sqlite_url() -> Iterator[str]:
    """The URL of a file that is not there yet."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{Path(folder) / 'state.db'}"
