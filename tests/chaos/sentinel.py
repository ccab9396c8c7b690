"""Two Redis servers that replicate, watched by three sentinels; the primary can be parted from both.

Each server is known to the others by the port of a proxy in front of it.  When that is stalled, its replica lags, and
the sentinels promote it, while clients still reach the old primary, and are still told that their writes are done.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from tests.chaos.wire import Wire
from tests.servers import RedisServer, free_port, redis_binary, short_folder
from tests.waiting import wait_until_async

_SENTINELS = 3
_CONFIG = """\
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor main 127.0.0.1 {primary} 2
sentinel down-after-milliseconds main 1000
sentinel failover-timeout main 4000
"""


class SentinelSet:
    """The servers, the proxies between them, and the sentinels."""

    def __init__(self, servers: list[RedisServer], between: list[Wire]) -> None:
        self._servers, self._between = servers, between
        self.primary = servers[0]

    @classmethod
    @asynccontextmanager
    async def open(cls, config: dict[str, Any]) -> AsyncIterator[Self]:
        """A set that replicates."""
        async with AsyncExitStack() as stack:
            servers = [RedisServer("redis", **config) for _ in range(2)]
            between = []
            for server in servers:
                stack.callback(server.destroy)
                wire = await stack.enter_async_context(Wire(server.socket))
                between.append(wire)
                server.config |= {"replica_announce_ip": "127.0.0.1", "replica_announce_port": wire.port}
                await asyncio.to_thread(server.start)
            with servers[1].client() as replica:
                replica.replicaof("127.0.0.1", str(between[0].port))
            made = cls(servers, between)
            await wait_until_async(made._follows, 20, "the replica follows")
            for _ in range(_SENTINELS):
                folder = short_folder()
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                stack.callback(_end, _start_sentinel(between[0].port, folder))
            yield made

    @property
    def replica(self) -> RedisServer:
        """The server that is not the primary."""
        return next(server for server in self._servers if server is not self.primary)

    def part(self) -> None:
        """Keep the primary from the replica and the sentinels; its clients still reach it."""
        self._between[self._servers.index(self.primary)].stall()

    def heal(self) -> None:
        """Let the old primary hear that it was deposed."""
        for wire in self._between:
            wire.cut()
            wire.resume()

    async def wait_until_promoted(self) -> None:
        """Wait for the sentinels to make the replica a primary; it is ours from then on."""
        await wait_until_async(lambda: self._is_primary(self.replica), 40, "the sentinels promote the replica")
        self.primary = self.replica

    async def wait_until_whole(self) -> None:
        """Wait until the deposed primary follows the new one."""
        await wait_until_async(self._follows, 60, "the deposed primary follows the new one")

    @staticmethod
    def _is_primary(server: RedisServer) -> bool:
        with server.client() as client:
            return bool(client.role()[0] == b"master")

    async def _follows(self) -> bool:
        def ask() -> bool:
            with self.replica.client() as client:
                role = client.role()
                return bool(role[0] == b"slave" and role[3] == b"connected")

        return await asyncio.to_thread(ask)


def _start_sentinel(primary: int, folder: Path) -> subprocess.Popen[bytes]:
    config = folder / "sentinel.conf"
    config.write_text(_CONFIG.format(port=free_port(), folder=folder, primary=primary))
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [redis_binary("redis"), str(config), "--sentinel"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
