"""Lines: a connection to Redis over which many calls share round trips.

What calls want to send within one turn of the event loop goes out together, and answers come back in the order of the
questions.  A caller that no longer waits leaves its answer behind, to be taken and forgotten: nobody else meets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse

Reply = Any

_STALE_AFTER = 1.0
"""Seconds of idleness after which the end of a connection may not have been noticed yet."""
_AT_ONCE = 16
"""Calls that wait for no others of this turn of the event loop: Redis works on them meanwhile."""
_LINGER = 1.0
"""Seconds in which a server that does not read may still take what a closed connection has for it."""
LARGE = 256 * 1024
"""Bytes from which a request or an answer is large: on a slow link others would wait for it."""
_SLOW = 0.05
"""Seconds after which an answer that is large and has not come in full holds others up."""
_PATIENCE = 1.0
"""Seconds that an exchange which is over its time waits for its next bytes."""
_LONGEST = 60.0
"""Seconds over its time after which an exchange is given up although bytes still move."""
_SPACING = 5e-6
"""Seconds between two looks at all deadlines, for each call that waits: many time-outs cost a part of it."""
_INCOMPLETE = object()
_NEVER = float("inf")


class LostError(Exception):
    """The connection ended before the answer."""


class LateError(Exception):
    """No answer came in time."""


class Exchange:
    """What one call sends, and the answers to it."""

    __slots__ = ("answer", "commands", "is_large", "latest", "open", "replies", "sent", "until", "wanted")

    def __init__(
        self, commands: list[bytes], wanted: int, until: float, answer: asyncio.Future[list[Reply]], *, is_large: bool
    ) -> None:
        self.commands = commands
        self.until = until
        """The instant, by the event loop's clock, at which it is given up unless bytes of it have moved."""
        self.is_large = is_large
        """Whether it goes with others that are large, and waits as long as one of them moves."""
        self.latest = until + _LONGEST
        """The instant at which it is given up whatever moves."""
        self.open = True
        """Whether somebody waits for the answer."""
        self.answer = answer
        self.wanted = wanted
        """How many replies make the answer."""
        self.replies: list[Reply] = []
        self.sent = False
        """Whether Redis may have heard of it."""


class SharedConnection(asyncio.Protocol):
    """One connection, taken over from redis-py once it is set up."""

    def __init__(self, connection: AbstractConnection) -> None:
        """Over a connection that has been made and does nothing else from now on."""
        self._loop = asyncio.get_running_loop()
        writer = connection._writer
        assert writer is not None
        # The writer would close the connection when it is collected, the connection when it is: both are ours now.
        self._writer, connection._writer, connection._reader = writer, None, None
        self._transport: asyncio.WriteTransport = writer.transport
        self._parser = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_INCOMPLETE
        )
        self._leaving: list[Exchange] = []
        self._waiting: deque[Exchange] = deque()
        self._open = 0
        """How many exchanges somebody waits for."""
        self._retired = self.lost = self._doubted = False
        self._heard = self._since = self._loop.time()
        self._partial = self._unsent = 0
        """Bytes that came of an answer since `_since`, which is not whole; bytes that had not left at the last look."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _NEVER
        self._transport.set_protocol(self)

    @property
    def usable(self) -> bool:
        """Whether new calls may use it."""
        return not self._retired and not self.lost and not self._transport.is_closing()

    @property
    def idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._open

    @property
    def is_held_up(self) -> bool:
        """Whether a large answer takes so long that others had better not wait behind it."""
        return self._partial > LARGE and self._loop.time() - self._since > _SLOW

    def send(self, commands: list[bytes], replies: int, until: float, *, is_large: bool = False) -> Exchange:
        """Send packed commands with all that others send in this turn of the event loop; so many replies will come.

        Who waits for the answer gets LateError at the instant `until`, or later where bytes still come or go; LostError
        where the connection ends.  Who waits no longer says so (`give_up`).
        """
        exchange = Exchange(commands, replies, until, self._loop.create_future(), is_large=is_large)
        self._open += 1
        alone = not self._leaving and not self._waiting
        stale = alone and self._loop.time() - self._heard > _STALE_AFTER
        self._leaving.append(exchange)
        if stale:
            # A turn more, and the event loop has told that the server closed the connection meanwhile.
            self._doubted = True
            self._loop.call_soon(self._loop.call_soon, self._leave)
        elif alone or (len(self._leaving) >= _AT_ONCE and not self._doubted):
            self._leave()
        elif len(self._leaving) == 1:
            self._loop.call_soon(self._leave)
        if until < self._alarm_at:
            self._set_alarm(until)
        return exchange

    def retire(self) -> None:
        """Take no new calls; close once nobody waits any more."""
        self._retired = True
        self.settle()

    def settle(self) -> None:
        """Close, if it was retired and nobody waits any more."""
        if self._retired and self.idle:
            self.close()

    def give_up(self, exchange: Exchange) -> None:
        """Nobody waits for this answer any more."""
        self._end(exchange)
        self.settle()

    def close(self) -> None:
        """Close at once: who still waits gets LostError."""
        self._retired = True
        self._transport.close()  # what was sent still goes out, if the server takes it
        if self._transport.get_write_buffer_size():
            self._loop.call_later(_LINGER, self._transport.abort)

    def _leave(self) -> None:
        leaving, self._leaving, self._doubted = self._leaving, [], False
        going = [exchange for exchange in leaving if not exchange.answer.done()]
        if self.lost or self._transport.is_closing():
            self._fail(going, LostError)
            return
        for exchange in going:
            exchange.sent = True
        self._waiting.extend(going)
        if going:
            self._transport.writelines([command for exchange in going for command in exchange.commands])
            self._unsent = self._transport.get_write_buffer_size()

    def _end(self, exchange: Exchange) -> None:
        if exchange.open:
            exchange.open = False
            self._open -= 1

    # ---- one alarm for all that wait, since hardly anybody ever waits in vain

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = None if at == _NEVER else self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, _NEVER
        now, soonest, looked_at = self._loop.time(), _NEVER, 0
        moved_at = self._moved_at(now)
        for exchange in (*self._leaving, *self._waiting):
            looked_at += 1
            if not exchange.open:
                continue
            if exchange.until <= now and not self._goes_on(exchange, moved_at):
                self._fail([exchange], LateError)
            else:
                soonest = min(soonest, exchange.until)
        self._set_alarm(max(soonest, now + _SPACING * looked_at))
        self.settle()

    def _moved_at(self, now: float) -> float:
        """When bytes of an exchange that is under way came or went last, as far as it is known."""
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if self._unsent < before:
            return now
        return self._heard if self._partial else 0.0

    def _goes_on(self, exchange: Exchange, moved_at: float) -> bool:
        """Whether an exchange that is over its time gets more, since it or what is large before it still moves."""
        if not exchange.is_large and not (self._waiting and exchange is self._waiting[0]):
            return False
        exchange.until = min(moved_at + _PATIENCE, exchange.latest)
        return exchange.until > self._loop.time()

    # ---- what the event loop tells

    def data_received(self, data: bytes) -> None:
        """Answers came."""
        now = self._heard = self._loop.time()
        self._parser.feed(data)
        gets, waiting, is_whole = self._parser.gets, self._waiting, False
        try:
            while (reply := gets()) is not _INCOMPLETE:
                if type(reply) is hiredis.PushNotification:
                    continue
                if not waiting:
                    raise InvalidResponse("an answer that nobody asked for")
                exchange = waiting[0]
                exchange.replies.append(reply)
                if len(exchange.replies) == exchange.wanted:
                    is_whole = True
                    waiting.popleft()
                    self._end(exchange)
                    if not exchange.answer.done():
                        exchange.answer.set_result(exchange.replies)
        except InvalidResponse:
            self.close()
        self._note_rest(len(data), now, is_whole=is_whole)
        if self._retired:
            self.settle()

    def _note_rest(self, came: int, now: float, *, is_whole: bool) -> None:
        """Note how much has come of an answer that is not whole."""
        if is_whole:
            self._partial, self._since = int(self._parser.has_data()), now
        else:
            if not self._partial:
                self._since = now
            self._partial += came

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, whoever ended it."""
        self.lost = True
        self._set_alarm(_NEVER)
        waiting, self._waiting = self._waiting, deque()
        self._fail(waiting, LostError)

    def _fail(self, exchanges: Iterable[Exchange], error: type[Exception]) -> None:
        for exchange in exchanges:
            self._end(exchange)
            if not exchange.answer.done():
                exchange.answer.set_exception(error())
