"""The private parts of other libraries that we use are there: a release that moves them is noticed here first."""

from __future__ import annotations

import asyncio
import inspect

from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine


async def test_a_connection_of_redis_py_gives_up_its_streams(valkey_url: str) -> None:
    """hot/connection.py takes the transport over, and reads by hiredis with redis-py's own errors."""
    async with Redis.from_url(valkey_url) as client:
        connection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        await connection.connect()
        try:
            assert isinstance(connection._writer, asyncio.StreamWriter)
            assert isinstance(connection._reader, asyncio.StreamReader)
            assert callable(connection._parser.parse_error)
            assert list(inspect.signature(connection._parser.set_pubsub_push_handler).parameters) != []
        finally:
            await connection.disconnect()


async def test_a_pool_of_sqlalchemy_can_be_given_up(sqlite_url: str) -> None:
    """durable/transactions.py has pooled connections closed that are older than what an operator changed."""
    engine = create_async_engine(sqlite_url.replace("sqlite:", "sqlite+aiosqlite:"))
    try:
        async with engine.connect() as connection:
            assert connection.sync_connection is not None
            record = connection.sync_connection.connection._connection_record
            assert record is not None
            assert record.starttime > 0
        engine.pool._invalidate(None)  # type: ignore[arg-type]  # of no connection in particular
        async with engine.connect() as connection:
            assert connection.sync_connection is not None
            assert connection.sync_connection.connection._connection_record.starttime >= record.starttime
    finally:
        await engine.dispose()
