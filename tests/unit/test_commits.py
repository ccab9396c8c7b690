"""Commits that are given up: how their task and their connection end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sessioncache.durable.commits import commit


class Committing:
    """A connection to PostgreSQL whose commit is answered when the test says so."""

    def __init__(self) -> None:
        self.dialect = SimpleNamespace(name="postgresql")
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.invalidated = False

    async def get_raw_connection(self) -> Any:
        """One whose driver sees it as broken already."""
        return SimpleNamespace(driver_connection=SimpleNamespace(closed=True))

    async def commit(self) -> None:
        """Wait for the answer."""
        await self.answer

    async def invalidate(self) -> None:
        """Leave the driver's connection."""
        self.invalidated = True


async def _begun(connection: Any) -> asyncio.Task[None]:
    task = asyncio.ensure_future(commit(connection))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_a_commit_that_was_answered_and_cancelled_at_once_leaves_its_connection() -> None:
    connection = Committing()
    task = await _begun(connection)
    connection.answer.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert connection.invalidated, "it was cut off"


async def test_a_commit_that_breaks_when_it_is_cut_off_ends_as_cancelled() -> None:
    connection = Committing()
    task = await _begun(connection)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done(), "only the driver says that it has ended"
    connection.answer.set_exception(OSError("broken"))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_commit_that_nobody_cancels_tells_what_became_of_it() -> None:
    failing, working = Committing(), Committing()
    tasks = [await _begun(failing), await _begun(working)]
    failing.answer.set_exception(OSError("broken"))
    working.answer.set_result(None)
    with pytest.raises(OSError, match="broken"):
        await tasks[0]
    await tasks[1]
    assert not working.invalidated
