"""A proxy in front of a server on a Unix socket: connections can be cut, refused, and their answers held back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self


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

    def stall(self) -> None:
        """Let nothing through any more, in either direction."""
        self._asking.clear()
        self._answering.clear()

    def resume(self) -> None:
        """Let everything through again, what was held back first."""
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
            while data := await reader.read(65536):
                await self._asking.wait()
                self.asked += len(data)
                writer.write(data)
                await writer.drain()
        self._close(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                self.answered += len(data)
                await self._answering.wait()
                writer.write(data)
                await writer.drain()
        self._close(writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
