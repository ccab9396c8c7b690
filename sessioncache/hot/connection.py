"""The shared connection: many calls share the round trips of one connection to Redis.

What calls want to send within one turn of the event loop goes out together, and answers come back in the order of the
requests.  A caller that stops waiting leaves its answer behind, which is received and dropped: no other call gets it.
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
"""Calls that are sent without waiting for others of this turn of the event loop: Redis works on them meanwhile."""
_LINGER = 1.0
"""Seconds that a server that reads slowly has to take what is still to be sent when a connection is closed."""
LARGE = 256 * 1024
"""Bytes from which a request or an answer is large: on a slow network others would wait for it."""
_SLOW = 0.05
"""Seconds after which a large answer that has not come in full holds others up."""
_PATIENCE = 1.0
"""Seconds that an exchange that is over its time waits for its next bytes."""
_LONGEST = 60.0
"""Seconds beyond its time after which an exchange is given up although bytes still come."""
_SPACING = 5e-6
"""Seconds between two checks of all deadlines, per call that waits: many time-outs cost only a part of that."""
_INCOMPLETE, _PUSHED = object(), hiredis.PushNotification
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
        """The instant, by the event loop's clock, at which it is given up unless bytes of it have come or gone
        lately."""
        self.is_large = is_large
        """Whether it shares the connection with other large ones, and waits as long as bytes of one of them come
        or go."""
        self.latest = until + _LONGEST
        """The instant at which it is given up in any case."""
        self.open = True
        """Whether a caller still waits for the answer."""
        self.answer = answer
        self.wanted = wanted
        """How many replies make up the answer."""
        self.replies: list[Reply] = []
        self.sent = False
        """Whether it was sent, so that Redis may have received it."""


class SharedConnection(asyncio.Protocol):
    """One connection, taken over from redis-py once it is set up."""

    def __init__(self, connection: AbstractConnection) -> None:
        """Take over a connection that has been made, and is used for nothing else from now on."""
        self._loop = asyncio.get_running_loop()
        writer = connection._writer
        assert writer is not None
        # Both close the connection when they are collected: the writer is kept here, and the connection gives it up.
        self._writer, connection._writer, connection._reader = writer, None, None
        self._transport: asyncio.WriteTransport = writer.transport
        self._parser = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=_INCOMPLETE
        )
        self._leaving: list[Exchange] = []
        self._waiting: deque[Exchange] = deque()
        self._open = 0
        """How many exchanges a caller waits for."""
        self._retired = self.lost = self._doubted = False
        self._heard = self._since = self._loop.time()
        self._partial = self._unsent = 0
        """Bytes of an answer that came since `_since` and is not complete; bytes that had not been sent at the last
        check."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = _NEVER
        self._transport.set_protocol(self)

    @property
    def usable(self) -> bool:
        """Whether new calls may use it."""
        return not self._retired and not self.lost and not self._transport.is_closing()

    @property
    def idle(self) -> bool:
        """Whether no caller waits for an answer."""
        return not self._open

    @property
    def is_held_up(self) -> bool:
        """Whether a large answer takes so long that others had better not wait behind it."""
        return self._partial > LARGE and self._loop.time() - self._since > _SLOW

    def send(self, commands: list[bytes], replies: int, until: float, *, is_large: bool = False) -> Exchange:
        """Send packed commands with all that others send in this turn of the event loop; so many replies will come.

        Whoever waits for the answer gets LateError at the instant `until`, or later while bytes still come or go;
        LostError where the connection ends.  Whoever stops waiting has to say so (`give_up`).
        """
        exchange = Exchange(commands, replies, until, self._loop.create_future(), is_large=is_large)
        self._open += 1
        alone = not self._leaving and not self._waiting
        stale = alone and self._loop.time() - self._heard > _STALE_AFTER
        self._leaving.append(exchange)
        if stale:
            # In one more turn the event loop reports whether the server closed the connection meanwhile.
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
        """Take no new calls; close once no caller waits any more."""
        self._retired = True
        self.settle()

    def settle(self) -> None:
        """Close, if it was retired and no caller waits any more."""
        if self._retired and self.idle:
            self.close()

    def give_up(self, exchange: Exchange) -> None:
        """No caller waits for this answer any more."""
        self._end(exchange)
        self.settle()

    def close(self) -> None:
        """Close at once: whoever still waits gets LostError."""
        self._retired = True
        self._transport.close()  # what was sent still goes out, if the server reads it
        if self._transport.get_write_buffer_size():
            self._loop.call_later(_LINGER, self._transport.abort)

    def _leave(self) -> None:
        leaving, self._leaving, self._doubted = self._leaving, [], False
        # R4: a call that was cancelled before it left must have no effect.
        going = [exchange for exchange in leaving if not exchange.answer.done()]
        if self.lost or self._transport.is_closing():
            self._fail(going, LostError)
            return
        for exchange in going:
            exchange.sent = True
        # Also those whose caller gives up later: an answer is matched to its request by the order alone.
        self._waiting.extend(going)
        if going:
            # In one write, so that many small calls cost one system call.
            self._transport.writelines(
                going[0].commands
                if len(going) == 1
                else [command for exchange in going for command in exchange.commands]
            )
            self._unsent = self._transport.get_write_buffer_size()

    def _end(self, exchange: Exchange) -> None:
        if exchange.open:
            exchange.open = False
            self._open -= 1

    # ---- one alarm for all that wait, since time-outs are rare

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
            # Its caller has gone: it waits only to be matched with its answer.
            if not exchange.open:
                continue
            if exchange.until <= now and not self._goes_on(exchange, moved_at):
                self._fail([exchange], LateError)
            else:
                soonest = min(soonest, exchange.until)
        # The more calls wait, the longer until the next check, so that many time-outs cost no more than their number.
        self._set_alarm(max(soonest, now + _SPACING * looked_at))
        self.settle()

    def _moved_at(self, now: float) -> float:
        """When bytes of an exchange under way last came or went, as far as that is known."""
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        if self._unsent < before:
            return now
        return self._heard if self._partial else 0.0

    def _goes_on(self, exchange: Exchange, moved_at: float) -> bool:
        """Whether an exchange that is over its time gets more, since bytes of it, or of large ones before it, still
        come or go."""
        # Answers come in order: of the small ones only the first can be the one that is coming.
        if not exchange.is_large and not (self._waiting and exchange is self._waiting[0]):
            return False
        exchange.until = min(moved_at + _PATIENCE, exchange.latest)
        return exchange.until > self._loop.time()

    # ---- called by the event loop

    def data_received(self, data: bytes) -> None:
        """Answers came."""
        now = self._heard = self._loop.time()
        self._parser.feed(data)
        gets, waiting, is_whole = self._parser.gets, self._waiting, False
        replies: list[Reply] = []  # of the exchange whose answer comes: each turn has dozens of them
        left = 0
        try:
            while (reply := gets()) is not _INCOMPLETE:
                # Pushed by the server (RESP3), not an answer to anything.
                if type(reply) is _PUSHED:
                    continue
                if not left:
                    if not waiting:
                        raise InvalidResponse("an answer that nobody asked for")
                    replies = waiting[0].replies
                    left = waiting[0].wanted - len(replies)
                replies.append(reply)
                left -= 1
                if not left:
                    is_whole = True
                    exchange = waiting.popleft()
                    self._end(exchange)
                    if not exchange.answer.done():
                        exchange.answer.set_result(replies)
        # What follows could not be matched to its call any more.
        except InvalidResponse:
            self.close()
        self._note_rest(len(data), now, is_whole=is_whole)
        if self._retired:
            self.settle()

    def _note_rest(self, came: int, now: float, *, is_whole: bool) -> None:
        """Record how much of an incomplete answer has come."""
        if is_whole:
            self._partial, self._since = int(self._parser.has_data()), now
        else:
            if not self._partial:
                self._since = now
            self._partial += came

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, whoever ended it."""
        self.lost = True
        self._set_alarm(_NEVER)
        # Those in `_leaving` are left to `_leave`, which fails them as not sent: they may go over another connection
        # (R4).
        waiting, self._waiting = self._waiting, deque()
        self._fail(waiting, LostError)

    def _fail(self, exchanges: Iterable[Exchange], error: type[Exception]) -> None:
        for exchange in exchanges:
            self._end(exchange)
            if not exchange.answer.done():
                exchange.answer.set_exception(error())
