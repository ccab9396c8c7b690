"""The physical limit: a bare client on one connection, hiredis on both ways, all that one tick sends in one write."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from hiredis import Reader, pack_command

from benchmarks.turn import plan
from benchmarks.turn.contender import new_text
from benchmarks.turn.naive import INDEX

_SHA = sha1(plan.SMALL_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Pipe(asyncio.Protocol):
    """Commands in, replies out, in order; nothing else: no time-outs, no repeats, no cancellation."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._waiting: deque[tuple[asyncio.Future[list[Any]], int]] = deque()
        self._replies: list[Any] = []
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise reply
            self._replies.append(reply)
            future, count = self._waiting[0]
            if len(self._replies) == count:
                self._waiting.popleft()
                future.set_result(self._replies)
                self._replies = []

    def send(self, packed: bytes, count: int) -> asyncio.Future[list[Any]]:
        """The replies to so many commands."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiting.append((future, count))
        return future

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()


class Limit:
    """The same commands as the naive contender's."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._reads: dict[int, bytes] = {}

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Over ``redis://`` without a password."""
        where = urlsplit(url)
        _, pipe = await asyncio.get_running_loop().create_connection(Pipe, where.hostname or "", where.port or 6379)
        return cls(pipe)

    async def create(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            for name in plan.names(number):
                fields = [part for key, value in plan.initial().items() for part in (key, _encode(value))]
                await self._pipe.send(_pack("HSET", name, *fields), 1)

    async def open(self, numbers: Sequence[int]) -> None:
        await self._pipe.send(_pack("SCRIPT", "LOAD", plan.SMALL_SCRIPT), 1)
        for number in numbers:
            self._reads[number] = b"".join(_pack("HGETALL", name) for name in plan.names(number))

    async def change(self, number: int) -> object:
        return await self._write(number, plan.CHANGED)

    async def turn(self, number: int) -> object:
        read = await self._pipe.send(self._reads[number], 3)
        state = [{key: _decode(value) for key, value in zip(s[::2], s[1::2], strict=True)} for s in read]
        await self._write(number, plan.WRITTEN)
        return state

    async def aclose(self) -> None:
        self._pipe.close()

    async def _write(self, number: int, key: str) -> object:
        pair = (key, _encode(new_text()))
        command = _pack("EVALSHA", _SHA, 4, *plan.names(number), INDEX, "1", *pair, *pair, *pair)
        return await self._pipe.send(command, 1)


def _pack(*command: str | bytes | int) -> bytes:
    packed: bytes = pack_command(command)  # type: ignore[arg-type]
    return packed
