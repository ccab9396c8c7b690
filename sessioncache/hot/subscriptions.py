"""Subscriptions: announcements of the scripts, received over one connection of its own while anybody listens.

A channel lies in the hash slot of its bucket (sharded publish and subscribe), so that a node of a cluster sends only to
those who listen to its own buckets.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from sessioncache.errors import ConfigurationError, HotTierUnavailableError, SessionCacheError
from sessioncache.hot.client import HotClient, drop, pack, parse_info
from sessioncache.hot.fields import key_field
from sessioncache.primitives.deadline import within
from sessioncache.primitives.revisions import DIGITS

logger = logging.getLogger(__name__)

_SILENCE = 15.0
"""Seconds without a message after which Redis is asked whether it is still there."""
_ANSWER = 5.0
"""Seconds in which it has to answer."""
_PAUSE = (0.05, 0.5)
"""Seconds before a broken connection is made anew."""
_MANY = b"*"
MOST_TOLD = 1_000
"""Keys that one announcement names (the scripts know the limit, too)."""


class Announcement(NamedTuple):
    """A change of one scope, as its channel announces it."""

    what: bytes
    """w fields were written, t `temp:` keys were, x the session is gone, ? the scope may have changed in any way."""
    revision: bytes
    before: bytes
    """The revision before."""
    keys: tuple[str, ...] | None
    """Without prefix; None: too many to be named."""
    incarnation: bytes

    @classmethod
    def of(cls, payload: bytes) -> Announcement:
        """From what a script sent (``announce`` in lua/prelude.lua)."""
        after, before = payload[1 : 1 + DIGITS], payload[1 + DIGITS : 1 + 2 * DIGITS]
        incarnation, _, told = payload[1 + 2 * DIGITS :].partition(b"|")
        keys = None if told == _MANY else tuple(f[1:].decode() for f in told.split(b"\0") if f.startswith(b"="))
        return cls(payload[:1], after, before, keys, incarnation)

    def payload(self) -> bytes:
        """What a script would send."""
        told = _MANY if self.keys is None else b"\0".join(key_field(key) for key in self.keys)
        return self.what + self.revision + self.before + self.incarnation + b"|" + told


class Sink(Protocol):
    """A listener."""

    @property
    def channels(self) -> frozenset[bytes]:
        """The channels that it listens to."""

    def heard(self, channel: bytes, payload: bytes) -> None:
        """Something was announced."""

    def interrupted(self) -> None:
        """Announcements may have been missed."""

    def closed(self) -> None:
        """No more announcements will come: the cache was closed."""


class Listener:
    """Receives for all who listen through one cache; a sink that is garbage-collected without leaving is forgotten."""

    def __init__(self, link: HotClient) -> None:
        self._link = link
        self._sinks: dict[bytes, WeakSet[Sink]] = {}
        """The sinks by channel."""
        self._confirmed: set[bytes] = set()
        self._awaited: dict[bytes, asyncio.Future[None]] = {}
        """Channels whose subscription Redis has yet to confirm."""
        self._problem: SessionCacheError | None = None
        """Why no announcements come."""
        self._needed = asyncio.Event()
        self._connection: AbstractConnection | None = None
        self._leaving: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._warned = False
        self._closed = False
        self._in_use: Counter[Sink] = Counter()
        self._pings: deque[asyncio.Future[None]] = deque()
        """Callers that wait for an answer to a PING, in the order of the requests."""
        link.when_left(self._leave_server)

    async def listen(self, sink: Sink, timeout: float) -> None:
        """Begin to listen; on return Redis has confirmed it.  `timeout` in seconds.

        HotTierUnavailableError, ConfigurationError where the Redis user may not subscribe or the cache is closed.
        """
        if self._closed:
            raise ConfigurationError("this cache has been closed")
        try:
            async with asyncio.timeout(timeout):
                await self._subscribe(sink)
        # Also where the caller is cancelled: nobody is there any more for what the sink receives.
        except BaseException as error:
            self.leave(sink)
            if isinstance(error, RedisError | OSError):  # TimeoutError is an OSError
                raise self._problem or HotTierUnavailableError("Redis did not confirm the subscription") from error
            raise

    def leave(self, sink: Sink) -> None:
        """Stop listening.  A channel that nobody listens to any more is left soon."""
        for channel in sink.channels:
            if channel in self._sinks:
                self._sinks[channel].discard(sink)

    async def catch_up(self) -> None:
        """Returns once everything announced before the call is delivered, or an interruption was reported, or
        will be."""
        if self._connection is not None:  # a dropped connection is about to be left, which counts as an answer
            with suppress(RedisError, OSError):
                await (await self._ping())

    @contextmanager
    def holding(self, sink: Sink) -> Iterator[None]:
        """Keep a sink alive while somebody waits for it: nothing else may refer to it, nor to the task that waits."""
        self._in_use[sink] += 1
        try:
            yield
        finally:
            self._in_use[sink] -= 1
            if not self._in_use[sink]:
                del self._in_use[sink]

    async def drop_idle(self) -> None:
        """Close the connection; it is made anew, and listeners get an interruption."""
        if self._connection is not None:
            await drop(self._connection)

    def _leave_server(self) -> None:
        """Leave a server that is no primary any more: it gets no announcements, or later than others."""
        if self._connection is not None and self._leaving is None:
            # Beside the call that has noticed it, which continues at once; kept, since the event loop holds tasks only
            # weakly.
            self._leaving = asyncio.ensure_future(drop(self._connection))

    async def aclose(self) -> None:
        """End, and report that to whoever still listens."""
        self._closed = True
        self._end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _end(self) -> None:
        sinks = {sink for those in self._sinks.values() for sink in those}
        self._sinks.clear()
        for sink in sinks:
            sink.closed()

    async def _subscribe(self, sink: Sink) -> None:
        loop, waited = asyncio.get_running_loop(), []
        for channel in sink.channels:
            self._sinks.setdefault(channel, WeakSet()).add(sink)
            if channel not in self._confirmed:
                waited.append(self._awaited.setdefault(channel, loop.create_future()))
        self._needed.set()
        if self._task is None or self._task.done():
            # In a context of its own: the deadline of this call is not that of the task.
            self._task = asyncio.create_task(self._run(), context=Context())
        elif waited:
            with suppress(RedisError, OSError):  # the next connection subscribes to all
                await self._send(b"SSUBSCRIBE", sink.channels - self._confirmed)
        for confirmation in waited:
            # Shared by all who wait for the channel: the cancellation of one of them must not end it.
            await asyncio.shield(confirmation)

    async def _send(self, command: bytes, channels: Iterable[bytes]) -> None:
        """Send a command for each channel: channels of several hash slots must not be in one command."""
        # A connection that was dropped would connect itself anew, and receive nothing.
        if self._connection is not None and self._connection.is_connected:
            commands = pack([(command, channel) for channel in channels])
            await self._connection.send_packed_command(commands, check_health=False)

    async def _ping(self) -> asyncio.Future[None]:
        """Ask Redis for an answer, which comes after all messages that it has sent before."""
        answered = asyncio.get_running_loop().create_future()
        self._pings.append(answered)
        await self._send(b"PING", [b""])
        return answered

    async def _ask_role(self, connection: AbstractConnection) -> None:
        """Ask whether this is still the primary; over RESP2 a subscriber may only PING."""
        if str(connection.protocol) != "3":
            await self._ping()
            return
        self._pings.append(asyncio.get_running_loop().create_future())
        await connection.send_packed_command(pack([(b"INFO", b"replication")]), check_health=False)

    # ---- the task that receives

    async def _run(self) -> None:
        """Receive until cancelled, over one connection after the other, while anybody listens."""
        try:
            while True:
                await self._needed.wait()
                await self._hear_on()
                await self._tidy()
                # While nobody listens it must not connect again, nor keep a problem for whoever comes next.
                if not self._sinks:
                    self._needed.clear()
                    self._problem = None
                # At random, so that many processes do not connect at the same moment after a failover.
                await asyncio.sleep(random.uniform(*_PAUSE))
        finally:
            self._end()

    async def _hear_on(self) -> None:
        """Receive over one connection; whatever ends it is recorded, so that listeners are not left without a
        reason."""
        try:
            await self._hear()
        except ResponseError as problem:
            # A refusal does not pass by itself: whoever begins to listen need not wait for a time-out.
            self._fail(_refused(problem))
            self._deaf(_refused(problem))
        except SessionCacheError as problem:
            self._deaf(problem)
        except (RedisError, OSError) as problem:  # mostly short
            self._problem = HotTierUnavailableError(f"no answer from Redis: {type(problem).__name__}")
        except Exception as problem:
            self._deaf(HotTierUnavailableError(f"what Redis says makes no sense: {type(problem).__name__}"))
        finally:
            await self._disconnect()

    def _deaf(self, problem: SessionCacheError) -> None:
        if not self._warned:
            logger.warning("watches hear nothing for now: %s", problem)
        self._problem, self._warned = problem, True

    async def _hear(self) -> None:
        """Receive over one connection until it breaks, or nobody listens any more."""
        with within(_ANSWER):
            self._connection = await self._link.connect()
        _unlogged(self._connection)
        clock = asyncio.get_running_loop().time
        await self._send(b"SSUBSCRIBE", list(self._sinks))
        tidied = clock()
        while True:
            message = await self._next(self._connection, _SILENCE)
            # Also while other channels are busy: sinks are held weakly, and leave a silent channel without a word.
            if message is None or clock() - tidied > _SILENCE:
                await self._tidy()
                tidied = clock()
            if message is None and not self._sinks:
                return
            # RESP3 can ask for the role: a server that was demoted would otherwise stay silent for ever.
            if message is None:
                await self._ask_role(self._connection)
                message = await self._next(self._connection, _ANSWER)
            if message is None:
                raise OSError("no answer")
            await self._take(message)

    async def _next(self, connection: AbstractConnection, patience: float) -> Any:
        """The next message; None: none came in `patience` seconds."""
        return await connection.read_response(
            disable_decoding=True, timeout=patience, disconnect_on_error=False, push_request=True
        )

    async def _take(self, message: Any) -> None:
        if not isinstance(message, list) or len(message) < 3:
            # No announcement, hence the answer to a PING, or to a question for the role.
            self._answered()
            if isinstance(message, bytes) and parse_info(message).get("role", "master") != "master":
                raise OSError("the server has become a replica")
            return
        kind, channel = message[0], message[1]
        if kind == b"ssubscribe":
            self._confirm(channel)
        elif kind == b"smessage":
            await self._tell(channel, message[2])

    def _answered(self) -> None:
        if self._pings:
            answered = self._pings.popleft()
            if not answered.done():
                answered.set_result(None)

    def _confirm(self, channel: bytes) -> None:
        """A subscription is confirmed: only from now on nothing is missed; earlier listeners may have missed
        something."""
        self._problem, self._warned = None, False
        self._confirmed.add(channel)
        confirmation = self._awaited.pop(channel, None)
        if confirmation is not None and not confirmation.done():
            confirmation.set_result(None)
        for sink in list(self._sinks.get(channel, ())):
            sink.interrupted()

    async def _tell(self, channel: bytes, payload: bytes) -> None:
        sinks = list(self._sinks.get(channel, ()))
        for sink in sinks:
            sink.heard(channel, payload)
        if not sinks:
            # Sinks are held weakly: the last one has gone without a word.
            await self._leave([channel])

    async def _tidy(self) -> None:
        await self._leave([channel for channel, sinks in self._sinks.items() if not sinks])

    async def _leave(self, channels: list[bytes]) -> None:
        for channel in channels:
            self._sinks.pop(channel, None)
            self._awaited.pop(channel, None)
            self._confirmed.discard(channel)
        await self._send(b"SUNSUBSCRIBE", channels)

    def _fail(self, error: SessionCacheError) -> None:
        """Refuse whoever begins to listen."""
        awaited, self._awaited = self._awaited, {}
        for confirmation in awaited.values():
            if not confirmation.done():
                confirmation.set_exception(error)
                confirmation.exception()  # whoever waited may have gone: the error counts as seen

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._leaving = None
        # The next connection has subscribed to nothing yet.
        self._confirmed.clear()
        # Whoever waits for an answer is released: the next connection reports the interruption.
        while self._pings:
            self._answered()
        if connection is not None:
            await drop(connection)


def _unlogged(connection: AbstractConnection) -> None:
    """Take pushed messages ourselves: redis-py would log them, names of keys included."""
    take = getattr(connection._parser, "set_pubsub_push_handler", None)
    if take is not None:
        take(_as_it_is)


async def _as_it_is(message: Any) -> Any:
    return message


def _refused(error: ResponseError) -> SessionCacheError:
    if type(error).__name__ == "NoPermissionError":
        return ConfigurationError("the Redis user may not subscribe: grant it the channels of the prefix (&PREFIX:*)")
    return HotTierUnavailableError(f"Redis refused a subscription ({type(error).__name__})")
