"""The wire between a process and a server: a proxy that can also be slow, half-open, and switched to another server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.proxy import Proxy


class _Line:
    """One connection through the wire."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.dead = False


class Wire(Proxy):
    """A `Proxy` for chaos.

    What a client sent that has gone away since is never delivered, as a connection that was reset would do: so a write
    of unknown outcome was applied before its caller was told, or never, and the verdict can be exact.
    """

    def __init__(self, upstream: str | Path) -> None:
        super().__init__(upstream)
        self._lines: set[_Line] = set()
        self.delay = 0.0
        """Seconds that each piece of data waits, in either direction; the same for all, so that nothing overtakes."""

    def switch(self, upstream: str | Path) -> None:
        """Lead new connections to another server."""
        self.upstream = str(upstream)

    def half_open(self) -> None:
        """Every connection that there is loses its server without being told: nothing arrives any more."""
        for line in self._lines:
            line.dead = True
            line.server.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_unix_connection(self.upstream)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(writer, upstream_writer)
        self._lines.add(line)
        self._writers |= {writer, upstream_writer}
        pumps = [
            asyncio.ensure_future(self._pump(line, reader, upstream_writer, self._asking)),
            asyncio.ensure_future(self._pump(line, upstream_reader, writer, self._answering)),
        ]
        for task in pumps:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        pumps[0].add_done_callback(lambda _: self._end(line))

    async def _pump(
        self, line: _Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        asks = writer is line.server
        with suppress(OSError):
            while data := await reader.read(65536):
                await gate.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if line.dead or (asks and reader.at_eof()):
                    continue
                writer.write(data)
                await writer.drain()
        if not (line.dead and not asks):  # the client's side of a half-open connection stays open
            self._close(writer)

    def _end(self, line: _Line) -> None:
        self._lines.discard(line)
        self._close(line.client)
        self._close(line.server)
