"""Traces of a user: they are planted wherever there is a place, and searched for in both tiers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import redis
from psycopg import sql

from sessioncache import Session, SessionCache
from tests.helpers import Urls, raw, user

TRACE = "tr4ce"
"""What is searched for."""
ADA = f"ada {TRACE}"
"""The user that is erased."""


def neighbour(name: str = "bob") -> str:
    """A user whose scopes lie in the same bucket as the erased one's."""
    names = (f"{name}{number}" for number in count())
    return next(one for one in names if user(one).bucket == user(ADA).bucket)


def named(name: str) -> str:
    """A name that is to leave no trace."""
    return f"{name} {TRACE}"


async def plant(cache: SessionCache, name: str) -> Session:
    """A session of the user that leaves traces wherever it can: 4 plain keys, 2 of a namespace."""
    made = await cache.create(
        ADA, session_id=named(name), title=named("title"), state={named("key"): named("value"), "temp:t": named("temp")}
    )
    await made.append("list", named("item"))
    await made.append("list", named("another"))
    await made.increment(named("number"), 1)
    await made.increment(named("fraction"), 0.5)
    await made.namespace(named("tools")).update({named("key"): named("value"), "list": []})
    await made.namespace(named("tools")).append("list", named("item"))
    await made.set(f"user:{named(name)}", named("value"))
    await made.touch(messages=1, first_message=named("message"))
    return made


_MEMBERS = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"list": ("LRANGE", 0, -1),
    b"stream": ("XRANGE", "-", "+"),
}
"""Type of a key -> the command that shows all of it."""


def traces(urls: Urls, marker: str) -> list[str]:
    """Every place in either tier where a marker is to be read: Redis keys, rows, files of SQLite."""
    found = [f"Redis: {key}" for key in _in_redis(urls.redis, marker.encode())]
    if urls.database.startswith("sqlite"):
        return [*found, *_in_sqlite(Path(urls.database.removeprefix("sqlite:///")), marker)]
    return [*found, *_in_postgresql(urls.database, marker.encode())]


def _in_redis(url: str, marker: bytes) -> Iterator[str]:
    """Keys that bear a marker in their name, or in what they hold."""
    with raw(url) as client:
        for key in client.scan_iter("*", count=1000):
            if marker in key or marker in _content(client, key):
                yield key.decode("utf-8", "backslashreplace")


def _content(client: redis.Redis, key: bytes) -> bytes:
    kind: Any = client.type(key)
    command, *rest = _MEMBERS[kind]
    return b"\0".join(_flat(client.execute_command(command, key, *rest)))  # type: ignore[no-untyped-call]


def _flat(reply: Any) -> Iterator[bytes]:
    if isinstance(reply, dict):
        reply = [part for pair in reply.items() for part in pair]
    if isinstance(reply, (list, tuple, set)):
        for part in reply:
            yield from _flat(part)
    elif reply is not None:
        yield reply if isinstance(reply, bytes) else str(reply).encode()


def _in_sqlite(path: Path, marker: str) -> Iterator[str]:
    """Lines of a dump, and files of the database, whose bytes may outlive the rows."""
    for file in path.parent.glob(path.name + "*"):
        if marker.encode() in file.read_bytes():
            yield f"file {file.name}"
    connection = sqlite3.connect(path)
    try:
        yield from (f"dump: {line}" for line in connection.iterdump() if marker in line)
    finally:
        connection.close()


def _in_postgresql(url: str, marker: bytes) -> Iterator[str]:
    """Rows of all tables, as a dump would hold them."""
    query = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    with psycopg.connect(url, autocommit=True) as server:
        for schema, table in server.execute(query + " AND table_name LIKE 'sessioncache%'").fetchall():
            copy = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(schema, table))
            with server.cursor().copy(copy) as rows:
                yield from (f"{table}: {row!r}" for row in map(bytes, rows) if marker in row)
