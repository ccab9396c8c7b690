"""The client of Redis: the one place that knows the topology, chosen by URL, and what a failed exchange means.

Commands go over a connection of our own, made with the caller's connection settings, so that no client's retries,
decoding or pool limits change what a call does: a write is never repeated without our knowledge, and replies are bytes.
All calls share it (see `connection`); after a call that gets no answer in time, the next ones use a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Self

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError

from sessioncache.errors import ConfigurationError
from sessioncache.hot.addresses import check_url
from sessioncache.hot.connection import LARGE, LateError, LostError, SharedConnection
from sessioncache.hot.errors import (
    ELSEWHERE,
    connection_failure,
    damage_of,
    explain,
    not_executed,
    not_served,
    unanswered,
)
from sessioncache.hot.scripts import Script
from sessioncache.primitives.deadline import attempt_deadline

logger = logging.getLogger(__name__)

Argument = bytes | int | str
Reply = Any

_PLAIN = frozenset((bytes, int, list, dict, type(None)))
"""Types of answers that are no errors."""


class Request:
    """Commands, packed once for as many times as they are sent, and the scripts that they call."""

    __slots__ = ("commands", "packed", "scripts")

    def __init__(self, commands: Sequence[Sequence[Argument]], *scripts: Script) -> None:
        self.commands = commands
        self.packed = [b"".join(pack(commands))]
        self.scripts = {script.sha: script for script in scripts}


class HotClient:
    """Sends commands and scripts, many in one round trip, over a connection of its own."""

    def __init__(self, client: Redis, *, owned: bool) -> None:
        if not isinstance(client, Redis):
            raise ConfigurationError(
                f"the Redis client must be a redis.asyncio.Redis, not {type(client).__module__}.{type(client).__name__}"
            )
        self.client = client
        self._owned = owned
        self._line: SharedConnection | None = None
        self._large_line: SharedConnection | None = None
        """A connection for what takes long to send or to receive, so that other calls need not wait for it."""
        self._making = asyncio.Lock()
        self._closed = False
        self._left: list[Callable[[], None]] = []

    @classmethod
    def from_url(cls, url: str, *, connect_timeout: float = 5.0) -> Self:
        """A client for ``redis://``, ``rediss://`` or ``unix://``.  ConfigurationError, which does not quote the
        URL."""
        check_url(url)
        try:
            # R4: no retries of the client, which could apply a write twice.
            client = Redis.from_url(
                url, retry=Retry(NoBackoff(), 0), socket_timeout=None, socket_connect_timeout=connect_timeout
            )
            # Made once and dropped: only this shows whether the client knows all options of the URL.
            client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except ValueError:
            raise ConfigurationError("an option of the Redis URL (after the ?) has a value of no use") from None
        except TypeError:
            raise ConfigurationError(
                "the Redis URL has an option (after the ?) that the client does not know"
            ) from None
        return cls(client, owned=True)

    async def call(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], *, is_large: bool = False
    ) -> Reply:
        """The reply of one script; `is_large`: it may take long to come."""
        call = evaluation(script, keys, args)
        (reply,) = await self._send([pack_command(call)], 1, is_large=is_large)  # type: ignore[arg-type]
        if isinstance(reply, NoScriptError):
            (reply,) = await self._exchange(_with_texts([call], {script.sha: script}), is_large=is_large)
        if isinstance(reply, ResponseError):
            raise explain(reply, _scopes_of(call))
        return reply

    async def call_beside(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], beside: Sequence[Sequence[Argument]]
    ) -> list[Reply]:
        """The reply of one script, then those of commands that follow it in the same round trip."""
        call = evaluation(script, keys, args)
        replies = await self.exchange([call, *beside], {script.sha: script})
        if isinstance(replies[0], ResponseError):
            raise explain(replies[0], _scopes_of(call))
        return replies

    async def call_many(
        self, script: Script, calls: Sequence[tuple[Sequence[bytes], Sequence[Argument]]]
    ) -> list[Reply]:
        """The replies of one script called for many keys in one round trip; a failed one raises once all are read."""
        replies = await self.exchange([evaluation(script, *call) for call in calls], {script.sha: script})
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise explain(reply)
        return replies

    async def call_each(
        self, script: Script, calls: Sequence[tuple[Sequence[bytes], Sequence[Argument]]]
    ) -> list[Reply]:
        """As `call_many`, but with `Damaged` in place of the reply where a scope of a call is damaged."""
        replies = await self.exchange([evaluation(script, *call) for call in calls], {script.sha: script})
        for place, reply in enumerate(replies):
            if isinstance(reply, ResponseError):
                replies[place] = damage_of(reply)
                if not replies[place]:
                    raise explain(reply)
        return replies

    async def ask(self, request: Request, *, is_large: bool = False) -> list[Reply]:
        """The replies to a request, in one round trip; raises for a failed one once all are read."""
        replies = await self._send(request.packed, len(request.commands), is_large=is_large)
        if not _has_errors(replies):
            return replies
        if any(isinstance(reply, NoScriptError) for reply in replies):
            replies = await self.exchange(request.commands, request.scripts, is_large=is_large)
        for command, reply in zip(request.commands, replies, strict=True):
            if isinstance(reply, ResponseError):
                raise explain(reply, _scopes_of(command))
        return replies

    async def command(self, *parts: Argument) -> Reply:
        """The reply of one plain command."""
        (reply,) = await self.exchange([parts], {})
        if isinstance(reply, ResponseError):
            raise explain(reply)
        return reply

    async def time(self) -> int:
        """The clock of the server: microseconds since 1970."""
        seconds, micros = await self.command(b"TIME")
        return int(seconds) * 1_000_000 + int(micros)

    async def info(self, *sections: str) -> dict[str, str]:
        """What the server reports of itself: names and values of some sections of INFO."""
        return parse_info(await self.command(b"INFO", *sections))

    async def exchange(
        self, commands: Sequence[Sequence[Argument]], scripts: dict[bytes, Script], *, is_large: bool = False
    ) -> list[Reply]:
        """Send commands in one round trip; the replies in order, errors of Redis among them."""
        if not commands:
            return []
        replies = await self._exchange(commands, is_large=is_large)
        # Redis forgets scripts on restart, and could once more in between: the second time each call bears its text.
        for each in (False, True):
            unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if not unknown:
                break
            again = _with_texts([commands[place] for place in unknown], scripts, each=each)
            answers = await self._exchange(again, is_large=is_large)
            for place, answer in zip(unknown, answers, strict=True):
                replies[place] = answer
        return replies

    async def _exchange(self, commands: Sequence[Sequence[Argument]], *, is_large: bool = False) -> list[Reply]:
        return await self._send(pack(commands), len(commands), is_large=is_large)

    async def _send(self, packed: list[bytes], replies: int, *, is_large: bool = False) -> list[Reply]:
        # A large request holds up whatever is sent after it, as a large answer does.
        is_large = is_large or sum(map(len, packed)) > LARGE
        while True:
            line = self._line_for(is_large=is_large) or await self._new_line(is_large=is_large)
            until = attempt_deadline()
            # R4: nothing has left yet, so that the caller learns that nothing was executed.
            if until <= asyncio.get_running_loop().time():
                raise not_executed("there was no time left to ask Redis")
            exchange = line.send(packed, replies, until, is_large=is_large)
            try:
                answers = await exchange.answer
            except LateError as error:
                line.retire()  # the next one may be better
                raise unanswered("no answer from Redis: TimeoutError") from error
            except LostError as error:
                if exchange.sent:
                    raise unanswered("no answer from Redis: ConnectionError") from error
                # R4: nothing of it left this process, so that it may go over another connection.
                continue
            except asyncio.CancelledError:
                # The answer comes nevertheless, in the order of the requests: the connection drops it.
                line.give_up(exchange)
                raise
            if _has_errors(answers) and any(isinstance(answer, ELSEWHERE) for answer in answers):
                self._leave(line)
                _check_served(answers)
            return answers

    def when_left(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever a server was left that serves nobody: its other connections are of no use, either."""
        self._left.append(tell)

    def _leave(self, line: SharedConnection) -> None:
        """Leave this server: behind one address another may be the primary by now, which only a new connection
        finds."""
        # `line` may have been replaced meanwhile, and is then none of the others.
        for one in (line, *self._lines()):
            one.retire()
        for tell in self._left:
            tell()

    def _line_for(self, *, is_large: bool) -> SharedConnection | None:
        """The connection to use, if there is one that can be used now."""
        line = self._large_line if is_large else self._line
        return line if line is not None and line.usable and (is_large or not line.is_held_up) else None

    async def _new_line(self, *, is_large: bool) -> SharedConnection:
        if self._closed:
            raise ConfigurationError("this cache has been closed")
        try:
            # One call connects, and all others wait for it and use the same connection.
            async with asyncio.timeout_at(attempt_deadline()), self._making:
                return self._line_for(is_large=is_large) or self._put(
                    SharedConnection(await self.connect()), is_large=is_large
                )
        except TimeoutError as error:
            raise connection_failure(error, is_tls=self._is_tls) from None

    def _put(self, line: SharedConnection, *, is_large: bool) -> SharedConnection:
        """Use a new connection; one that a large answer holds up is for large answers from now on."""
        if is_large:
            self._large_line = line
            return line
        before, self._line = self._line, line
        if before is not None and before.usable:
            if self._line_for(is_large=True) is None:
                self._large_line = before
            else:
                before.retire()
        return line

    async def connect(self) -> AbstractConnection:
        """A new connection, which the caller closes with `drop`.

        ConfigurationError where it needs another URL or more rights, else HotTierUnavailableError.
        """
        connection: AbstractConnection = self.client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        # R4, also for a client of the caller's, whose own settings may ask for retries.
        connection.retry = Retry(NoBackoff(), 0)
        try:
            async with asyncio.timeout_at(attempt_deadline()):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError) as error:
            await drop(connection)
            raise connection_failure(error, is_tls=self._is_tls) from error
        # A caller that is cancelled while it connects would leave an open socket behind.
        except BaseException:
            await drop(connection)
            raise
        return connection

    @property
    def _is_tls(self) -> bool:
        return issubclass(self.client.connection_pool.connection_class, SSLConnection)

    async def drop_idle(self) -> None:
        """Close the connections that no call uses now."""
        for line in self._lines():
            if line.idle:
                line.close()

    def _lines(self) -> list[SharedConnection]:
        return [line for line in (self._line, self._large_line) if line is not None]

    async def aclose(self) -> None:
        """Close our connections, once all calls under way have ended; the caller's client stays open."""
        self._closed = True
        for line in self._lines():
            line.retire()
        if self._owned:
            await self.client.aclose()


def _has_errors(answers: Sequence[Reply]) -> bool:
    """Whether there are errors among answers, quickly: every call asks, and hardly any has one."""
    return not _PLAIN.issuperset(map(type, answers))


def _check_served(answers: Sequence[Reply]) -> None:
    """Raise where an answer says that this connection is not served; commands answered before it were executed (R4)."""
    for place, answer in enumerate(answers):
        if isinstance(answer, RedisConnectionError):
            raise (unanswered("Redis stopped serving a connection") if place else not_served(answer)) from answer


def evaluation(script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> tuple[Argument, ...]:
    """The command that runs a script."""
    return (b"EVALSHA", script.sha, len(keys), *keys, *args)


def _scopes_of(command: Sequence[Argument]) -> list[str]:
    """The scopes whose hashes a command is for."""
    keys = command[3 : 3 + int(command[2])] if command[0] in (b"EVALSHA", b"EVAL") else command[1:2]
    parts = (key.rpartition(b":h:") for key in keys if isinstance(key, bytes))
    return [member.decode() for _, hash_, member in parts if hash_]


def _with_texts(
    calls: Sequence[Sequence[Argument]], scripts: dict[bytes, Script], *, each: bool = False
) -> list[Sequence[Argument]]:
    """Calls of scripts that Redis does not know: the first of each bears its text, and the others find it known.

    `each`: all of them bear it, for a Redis that forgot it again in between.
    """
    told: set[Argument] = set()
    commands: list[Sequence[Argument]] = []
    for call in calls:
        sha = call[1]
        commands.append(call if sha in told and not each else (b"EVAL", scripts[sha].text, *call[2:]))  # type: ignore[index]
        told.add(sha)
    return commands


def parse_info(told: bytes) -> dict[str, str]:
    """Names and values of a reply to INFO."""
    lines = (line.partition(":") for line in told.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in lines if value}


def pairs_of(reply: Reply) -> dict[bytes, bytes]:
    """The pairs that HGETALL answers: RESP3 pairs them, RESP2 does not."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def pack(commands: Sequence[Sequence[Argument]]) -> list[bytes]:
    """The bytes to send.  Packed in C: redis-py's own packing takes longer than everything else that a call does
    here."""
    return [pack_command(tuple(command)) for command in commands]  # type: ignore[arg-type]


async def drop(connection: AbstractConnection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.disconnect(nowait=True)
    except (RedisError, OSError) as error:
        logger.debug("closing a connection failed: %s", type(error).__name__)
