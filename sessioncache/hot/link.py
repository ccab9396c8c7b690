"""The link to Redis: the one place that knows the topology, chosen by URL, and what a failed exchange means.

Commands go over connections of our own, made with the caller's connection settings, so that no client's retries,
decoding or pool limits change what a call does: a write is never repeated behind our back, replies are bytes, callers
wait for a free connection instead of failing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Self

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from sessioncache.deadline import attempt_deadline, seconds_left
from sessioncache.errors import ConfigurationError, HotTierUnavailableError, MemoryFullError, SessionCacheError
from sessioncache.hot.scripts import Script

logger = logging.getLogger(__name__)

Argument = bytes | int | str
Reply = Any

MAX_CONNECTIONS = 32
"""Most connections of one link; further calls wait for a free one."""
_STALE_AFTER = 1.0
"""Seconds of idleness after which a connection is looked at before it is used."""

_NOT_EXECUTED = (ClusterDownError, MasterDownError, ReadOnlyError, TryAgainError, NoScriptError)


class NotExecutedError(HotTierUnavailableError):
    """Redis certainly did not execute the command: it may be repeated whatever it is."""


class UnansweredError(HotTierUnavailableError):
    """The command was sent and no answer came: it may have been executed."""


class HotLink:
    """Sends commands and scripts, many in one round trip, over connections of its own."""

    def __init__(self, client: Redis, *, owned: bool) -> None:
        if not isinstance(client, Redis):
            raise ConfigurationError(
                f"the Redis client must be a redis.asyncio.Redis, not {type(client).__module__}.{type(client).__name__}"
            )
        self.client = client
        self._owned = owned
        self._idle: list[tuple[AbstractConnection, float]] = []
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._closed = False

    @classmethod
    def from_url(cls, url: str, *, connect_timeout: float = 5.0) -> Self:
        """A link to ``redis://``, ``rediss://`` or ``unix://``.  ConfigurationError, which does not quote the URL."""
        try:
            client = Redis.from_url(
                url, retry=Retry(NoBackoff(), 0), socket_timeout=None, socket_connect_timeout=connect_timeout
            )
            client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except ValueError:
            raise ConfigurationError("the Redis URL must begin with redis://, rediss:// or unix://") from None
        except TypeError:
            raise ConfigurationError(
                "the Redis URL has an option (after the ?) that the client does not know"
            ) from None
        return cls(client, owned=True)

    async def call(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Reply:
        """The reply of one script."""
        (reply,) = await self.exchange([evaluation(script, keys, args)], {script.sha: script})
        if isinstance(reply, ResponseError):
            raise explain(reply)
        return reply

    async def call_many(
        self, script: Script, calls: Sequence[tuple[Sequence[bytes], Sequence[Argument]]]
    ) -> list[Reply]:
        """The replies of one script called for many keys in one round trip; a failed one raises after all were read."""
        if not calls:
            return []
        replies = await self.exchange([evaluation(script, *call) for call in calls], {script.sha: script})
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise explain(reply)
        return replies

    async def command(self, *parts: Argument) -> Reply:
        """The reply of one plain command."""
        (reply,) = await self.exchange([parts], {})
        if isinstance(reply, ResponseError):
            raise explain(reply)
        return reply

    async def info(self, *sections: str) -> dict[str, str]:
        """What the server tells of itself: names and values of some sections of INFO."""
        return parse_info(await self.command(b"INFO", *sections))

    async def exchange(self, commands: Sequence[Sequence[Argument]], scripts: dict[bytes, Script]) -> list[Reply]:
        """Send commands in one round trip; the replies in order, errors of Redis among them."""
        replies = await self._exchange(commands)
        for place, reply in enumerate(replies):
            if isinstance(reply, NoScriptError):
                script = scripts[commands[place][1]]  # type: ignore[index]
                (replies[place],) = await self._exchange([(b"EVAL", script.text, *commands[place][2:])])
        return replies

    async def _exchange(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        async with self._slots:
            connection = await self._take()
            if seconds_left() <= 0:
                self._give_back(connection)
                raise NotExecutedError("no connection to Redis became free in time")
            try:
                async with asyncio.timeout_at(attempt_deadline()):
                    await connection.send_packed_command(pack(commands), check_health=False)
                    replies = [await _read(connection) for _ in commands]
            except BusyLoadingError as error:
                await drop(connection)
                raise NotExecutedError("Redis is loading its data") from error
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:  # TimeoutError is an OSError
                await drop(connection)
                raise UnansweredError(f"no answer from Redis: {type(error).__name__}") from error
            except BaseException:
                # A cancelled call leaves its answer behind: this connection must not serve another call.
                await drop(connection)
                raise
            if self._closed:
                await drop(connection)
            else:
                self._give_back(connection)
            return replies

    async def _take(self) -> AbstractConnection:
        if self._closed:
            raise ConfigurationError("this cache has been closed")
        while self._idle:
            connection, since = self._idle.pop()
            if asyncio.get_running_loop().time() - since < _STALE_AFTER or await _is_usable(connection):
                return connection
            await drop(connection)
        return await self.connect()

    async def connect(self) -> AbstractConnection:
        """A new connection, which the caller closes with `drop`.

        ConfigurationError, NotExecutedError.
        """
        connection: AbstractConnection = self.client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        connection.retry = Retry(NoBackoff(), 0)
        try:
            async with asyncio.timeout_at(attempt_deadline()):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as error:
            await drop(connection)
            # Over a Unix socket redis-py hides it in a ConnectionError.
            if isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError):
                raise ConfigurationError("Redis refuses the user name or password of the URL") from error
            raise NotExecutedError(f"Redis cannot be reached: {type(error).__name__}") from error
        except BaseException:
            await drop(connection)
            raise
        return connection

    def _give_back(self, connection: AbstractConnection) -> None:
        if connection.is_connected:
            self._idle.append((connection, asyncio.get_running_loop().time()))

    async def drop_idle(self) -> None:
        """Close the connections that no call uses now."""
        while self._idle:
            await drop(self._idle.pop()[0])

    async def aclose(self) -> None:
        """Close our connections; the caller's client stays open."""
        self._closed = True
        await self.drop_idle()
        if self._owned:
            await self.client.aclose()


def evaluation(script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> tuple[Argument, ...]:
    """The command that runs a script."""
    return (b"EVALSHA", script.sha, len(keys), *keys, *args)


def parse_info(told: bytes) -> dict[str, str]:
    """Names and values of a reply to INFO."""
    lines = (line.partition(":") for line in told.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines if value}


def pairs_of(reply: Reply) -> dict[bytes, bytes]:
    """What HGETALL answers: RESP3 pairs it, RESP2 does not."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def explain(error: ResponseError) -> SessionCacheError:
    """What an error reply of Redis means for the caller."""
    if isinstance(error, OutOfMemoryError):
        return MemoryFullError("Redis is out of memory and refuses writes; reads, deletes and flushing work on")
    if isinstance(error, ReadOnlyError):
        return NotExecutedError("this Redis is a replica, which takes no writes")
    word = str(error).split(" ", 1)[0][:40]
    if isinstance(error, _NOT_EXECUTED) or word in {"BUSY", "MISCONF", "NOREPLICAS", "LOADING"}:
        return NotExecutedError(f"Redis cannot execute commands now ({type(error).__name__}: {word})")
    logger.error("Redis refused a command: %s", type(error).__name__)
    # The text of such an error may quote arguments, which are state: only its first word is told.
    return HotTierUnavailableError(f"Redis refused a command ({type(error).__name__}: {word})")


def pack(commands: Sequence[Sequence[Argument]]) -> list[bytes]:
    """The bytes to send.  Packed in C: redis-py's own packing takes longer than all else that a call does here."""
    return [pack_command(tuple(command)) for command in commands]  # type: ignore[arg-type]


async def _read(connection: AbstractConnection) -> Reply:
    try:
        return await connection.read_response(disable_decoding=True)
    except (RedisConnectionError, RedisTimeoutError):
        raise
    except ResponseError as error:
        return error


async def _is_usable(connection: AbstractConnection) -> bool:
    try:
        return connection.is_connected and not await connection.can_read()
    except (RedisError, OSError):
        return False


async def drop(connection: AbstractConnection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.disconnect(nowait=True)
    except (RedisError, OSError) as error:
        logger.debug("closing a connection failed: %s", type(error).__name__)
