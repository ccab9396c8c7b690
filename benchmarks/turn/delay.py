"""A TCP proxy that passes on what a server replies some milliseconds later, as if it were farther away.

``python -m benchmarks.turn.delay PORT MILLISECONDS`` prints the port it listens on, and ends with its stdin.  Replies
are delayed, not queued: of many connections, and of one, each reply waits for its own time only.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from typing import Self


class Side(asyncio.Protocol):
    """One of the two connections of a pair; what it receives goes out at the other side."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self.other: Side

    @classmethod
    def pair(cls, delay: float) -> tuple[Self, Self]:
        """The client's side, and the server's, whose replies are delayed."""
        client, server = cls(0), cls(delay)
        client.other, server.other = server, client
        return client, server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        for data in self._unsent:
            self.write(data)

    def data_received(self, data: bytes) -> None:
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self.other.write, data)
        else:
            self.other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._delay, self.other.close)

    def write(self, data: bytes) -> None:
        """Send, or keep until there is a connection."""
        if self._transport is None:
            self._unsent.append(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close this side's connection."""
        if self._transport is not None:
            self._transport.close()


async def serve(port: int, delay: float) -> None:
    """Until stdin ends."""
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[object]] = set()

    def accept() -> Side:
        client, server = Side.pair(delay)
        task: asyncio.Task[object] = loop.create_task(loop.create_connection(lambda: server, "127.0.0.1", port))
        connecting.add(task)
        task.add_done_callback(connecting.discard)
        return client

    async with await loop.create_server(accept, "127.0.0.1", 0) as listening:
        print(listening.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Run as a command.  select() waits for microseconds, where epoll would round a delay up to whole milliseconds."""
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(serve(int(sys.argv[1]), float(sys.argv[2]) / 1_000))


if __name__ == "__main__":
    main()
