"""A proxy in front of a server on a Unix socket: connections can be cut, refused, and their answers held back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_CHUNK = 16_384


class Proxy:
    """Listens on a port of the loopback interface; use it as an asynchronous context manager."""

    def __init__(self, upstream: str | Path) -> None:
        self.upstream = str(upstream)
        """Where new connections lead."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering = asyncio.Event()
        self._asking = asyncio.Event()
        self._answering.set()
        self._asking.set()
        self.asked = 0
        """Bytes that clients have sent."""
        self.answered = 0
        """Bytes that the server has sent, held back or not."""
        self._allowed: int | None = None
        self._rest = asyncio.Event()
        self.seconds_a_chunk = 0.0
        """How long 16 KiB of answers take, and as many of requests: a slow link."""
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def accept(self) -> None:
        """Listen (again), always on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse new connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def cut(self) -> None:
        """Cut every connection now, on both sides, and forget what was held back."""
        for writer in list(self._writers):
            writer.transport.abort()

    def swallow(self) -> None:
        """Let nothing through any more on the connections that there are, which stay open; new ones work."""
        for task in self._tasks:
            task.cancel()

    @property
    def connected(self) -> bool:
        """Whether any connection is open."""
        return bool(self._writers)

    def hold_answers(self) -> None:
        """Let requests through to the server and keep its answers back."""
        self._answering.clear()

    def hold_answers_after(self, count: int) -> None:
        """Let so many bytes of answers through, and keep back what follows on the connection that they end on."""
        self._allowed = count
        self._rest.clear()

    def stall(self) -> None:
        """Let nothing through any more, in either direction."""
        self._asking.clear()
        self._answering.clear()

    def resume(self) -> None:
        """Let everything through again, what was held back first."""
        self._allowed = None
        self._rest.set()
        self._asking.set()
        self._answering.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_unix_connection(self.upstream)
        self._writers |= {writer, upstream_writer}
        for pump in (self._ask(reader, upstream_writer), self._answer(upstream_reader, writer)):
            task = asyncio.ensure_future(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._asking.wait()
                await self._take_time()
                self.asked += len(data)
                writer.write(data)
                await writer.drain()
        self._close(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                self.answered += len(data)
                await self._answering.wait()
                if self._allowed is not None:
                    data = await self._part_of(data, writer)
                await self._take_time()
                writer.write(data)
                await writer.drain()
        self._close(writer)

    async def _take_time(self) -> None:
        if self.seconds_a_chunk:
            await asyncio.sleep(self.seconds_a_chunk)

    async def _part_of(self, data: bytes, writer: asyncio.StreamWriter) -> bytes:
        """What is to follow; once the rest is let through, if not all of it is allowed now."""
        allowed = self._allowed or 0
        if len(data) <= allowed:
            self._allowed = allowed - len(data)
            return data
        self._allowed = None
        writer.write(data[:allowed])
        await self._rest.wait()
        return data[allowed:]

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
