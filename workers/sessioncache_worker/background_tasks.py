"""Background tasks: what a worker does beside its rounds; one that fails is logged, restarted, and shown by doctor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from sessioncache.errors import SessionCacheError

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a task is restarted."""
_WELL = 10.0
"""Seconds for which a restarted task has to run until it counts as well."""


class BackgroundTasks:
    """Endless jobs, each restarted whenever it ends."""

    def __init__(self, jobs: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        self._jobs = jobs
        self._tasks: list[asyncio.Future[None]] = []
        self.troubles: dict[str, str] = {}
        """Task -> why it failed, until it is well again."""

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.ensure_future(self._keep(name)) for name in self._jobs]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=1.0)

    async def _keep(self, name: str) -> None:
        pause = _FIRST_PAUSE
        while True:
            job = asyncio.ensure_future(self._jobs[name]())
            try:
                # A job that failed before is watched for a while: only one that lasts is reported as working again.
                await asyncio.wait({job}, timeout=_WELL if name in self.troubles else None)
                if not job.done():
                    del self.troubles[name]
                    pause = _FIRST_PAUSE
                    logger.warning("the worker's %s works again", name)
                    await asyncio.wait({job})
            except asyncio.CancelledError:
                job.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await job
                raise
            self._note(name, job)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _note(self, name: str, job: asyncio.Future[None]) -> None:
        error = None if job.cancelled() else job.exception()
        # The text of our own errors contains no state; of any other error only the class is safe.
        cause = str(error) if isinstance(error, SessionCacheError) else type(error).__name__
        if name not in self.troubles:
            logger.error("the worker's %s failed, and is started again: %s", name, cause)
        self.troubles[name] = cause
