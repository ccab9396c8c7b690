"""The servers that all peers share: one Redis or Valkey, and one PostgreSQL with a database for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.servers import PostgreSQLServer, RedisServer

_CONNECTIONS = 300
"""That PostgreSQL takes: one for each thread of the synchronous peer, and pools for the others."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Both servers, over TCP on the loopback interface."""

    redis: RedisServer
    postgresql: PostgreSQLServer

    def database(self) -> str:
        """The URL of a new database."""
        return self.postgresql.url(self.postgresql.create_database())


@contextmanager
def servers() -> Iterator[Stage]:
    """Start both, durable as by default: fsync and synchronous commit on."""
    redis = RedisServer(tcp=True).start()
    try:
        postgresql = PostgreSQLServer(
            tcp=True, fsync="on", shared_buffers="256MB", max_connections=_CONNECTIONS
        ).start()
        try:
            yield Stage(redis, postgresql)
        finally:
            postgresql.destroy()
    finally:
        redis.destroy()
