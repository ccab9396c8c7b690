"""Commits: a caller that gives one up leaves it to the server, and does not ask the server to cancel it.

A driver whose task is cancelled asks the server to cancel the statement.  Where a commit waits for a synchronous
standby, PostgreSQL then shows at once what the standby lacks, and the row would pass for evidence that it is durable
(R11).
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection


async def commit(connection: AsyncConnection) -> None:
    """Commit.  PostgreSQL: a caller who is cancelled leaves the connection, and may not know what became of it."""
    if connection.dialect.name == "sqlite":
        await connection.commit()
        return
    await _Commit(connection, (await connection.get_raw_connection()).driver_connection)


class _Commit(asyncio.Task[None]):
    """A commit under way.  Cancelling it, also at the end of an event loop, cuts its connection off."""

    def __init__(self, connection: AsyncConnection, driver: Any) -> None:
        self._connection = connection
        self._driver = driver
        self._given_up = False
        super().__init__(self._run())

    def cancel(self, msg: Any | None = None) -> bool:
        """End soon, cancelled, without sending anything to the server; False where it has ended."""
        if self.done():
            return False
        self._given_up = True
        _cut_off(self._driver)
        return True

    async def _run(self) -> None:
        try:
            await self._connection.commit()
        except Exception:
            if not self._given_up:
                raise
        if self._given_up:
            await self._connection.invalidate()  # the answer may have come before
            raise asyncio.CancelledError


def _cut_off(driver: Any) -> None:
    """Let the driver find its connection broken.

    The socket stays open until the driver closes it: its number must not be another's while the event loop watches it.
    """
    if driver.closed:
        return
    with suppress(OSError), socket.socket(fileno=os.dup(driver.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
