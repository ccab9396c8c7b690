"""The wire: JSON-RPC messages of one MCP client, a line each, over two file descriptors.

It stands in place of the SDK's `stdio_server`, which does not end on a signal while the client keeps its end open,
drops the answers to what was asked before the client closed it, and gives none to a line that it cannot read (nonsense,
a lone surrogate).  What shows it: `test_a_signal_ends_it_while_the_client_holds_its_end_open` and
`test_the_end_of_input_ends_it_once_what_was_asked_is_answered` in tests/tool/test_mcp.py, and tests/tool/test_wire.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from queue import SimpleQueue
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from sessioncache.tool.replies import as_text

_CHUNK = 64 * 1024
_LONGEST_LINE = 64 * 1024 * 1024
_LAST_ANSWERS = 10.0
"""Most seconds that the client's last requests are worked on after it closed its end."""
_LAST_BYTES = 2.0
"""Most seconds to wait for the client to read what was written, at the end."""
_PARSE_ERROR = types.JSONRPCError(
    jsonrpc="2.0", id=None, error=types.ErrorData(code=types.PARSE_ERROR, message="this line is no message")
)


class Wire:
    """Reads and writes in threads of its own, which nobody waits for: neither a client that is silent nor one that
    does not read keeps the process from ending."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Of file descriptors of any kind: pipes, sockets, terminals, files."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._writing = threading.Thread(target=self._write_out, daemon=True)
        self._asked: set[types.RequestId] = set()
        """Requests without an answer yet."""
        self._answered = anyio.Event()

    async def serve(self, server: Server[Any]) -> None:
        """Serve until the client closes its end and has its answers."""
        to_server, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception]()
        write_stream, from_server = anyio.create_memory_object_stream[SessionMessage]()
        self._writing.start()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._receive, to_server)
                group.start_soon(self._send, from_server)
                await server.run(read_stream, write_stream, server.create_initialization_options())
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # one task was ended while another one handed it a message
        finally:
            self._queue.put(None)
            self._writing.join(_LAST_BYTES)

    async def _receive(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            async for line in self._lines():
                message = _parsed(line)
                if message is None:
                    self._put(_PARSE_ERROR)
                    continue
                self._note_asked(message)
                await to_server.send(SessionMessage(message))
            if self._asked:
                with anyio.move_on_after(_LAST_ANSWERS):
                    await self._answered.wait()

    async def _send(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for one in from_server:
                self._put(one.message)
                if isinstance(one.message, types.JSONRPCResponse | types.JSONRPCError) and one.message.id is not None:
                    self._settle(one.message.id)

    def _note_asked(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(message.id)
            self._answered = anyio.Event()
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))

    def _settle(self, request: object) -> None:
        """An answer was given, or a client cancelled what may be anything; to the server "5" is 5 then."""
        self._asked -= {one for one in self._asked if str(one) == str(request)}
        if not self._asked:
            self._answered.set()

    def _put(self, message: types.JSONRPCMessage) -> None:
        told = message.model_dump(by_alias=True, exclude_unset=True, mode="json")
        self._queue.put(as_text(told).encode() + b"\n")  # pydantic's text cannot bear the lone surrogates of an id

    async def _lines(self) -> AsyncIterator[bytes]:
        """Lines that are not blank, until the end; an empty one for what was too long."""
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_in, args=(loop, reader), daemon=True).start()
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than allowed; what came of it is dropped
                yield b""
                continue
            if not line:
                return
            if line.strip():
                yield line

    def _read_in(self, loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader) -> None:
        try:
            while chunk := os.read(self._incoming, _CHUNK):
                loop.call_soon_threadsafe(reader.feed_data, chunk)
            loop.call_soon_threadsafe(reader.feed_eof)
        except RuntimeError:
            return  # the loop has ended before the client

    def _write_out(self) -> None:
        while (line := self._queue.get()) is not None:
            left = memoryview(line)
            try:
                while left:
                    left = left[os.write(self._outgoing, left) :]
            except OSError:
                return  # the client is gone


def _parsed(line: bytes) -> types.JSONRPCMessage | None:
    try:
        # Not pydantic's parser: it refuses lone surrogates, which the tool reports to the caller itself.
        return types.jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
    except (ValueError, RecursionError):
        return None
