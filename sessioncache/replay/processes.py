"""The processes of a replay: agents that are given work, workers that are killed and replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from typing import Any

from sessioncache.coordination.connecting import DATABASE_URL, REDIS_URL

_LINE = 16 * 1024 * 1024
"""Longest report of an agent, in bytes."""


class AgentProcess:
    """One agent process."""

    def __init__(self, process: Process, heard: Callable[[dict[str, Any]], None]) -> None:
        self._process = process
        self._heard = heard
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def start(cls, options: dict[str, Any], heard: Callable[[dict[str, Any]], None]) -> AgentProcess:
        """Start one; `heard` is called with each of its reports."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sessioncache.replay.agent", stdin=PIPE, stdout=PIPE, limit=_LINE
        )
        agent = cls(process, heard)
        agent.tell(options)
        return agent

    def tell(self, what: dict[str, Any]) -> None:
        """Send it one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def finish(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._listening

    def kill(self) -> None:
        """End it at once."""
        if self._process.returncode is None:
            self._process.kill()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._heard(json.loads(line))
        code = await self._process.wait()
        if code:
            self._heard({"failed": "process", "error": f"an agent process ended with exit code {code}"})


class WorkerProcess:
    """One worker process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, redis_url: str, database_url: str, **options: object) -> WorkerProcess:
        """Start one, with options of its command; the URLs go by the environment: nobody sees their passwords."""
        given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sessioncache_worker", *given),
            env={**os.environ, REDIS_URL: redis_url, DATABASE_URL: database_url},
            stdin=DEVNULL,
            stdout=DEVNULL,
        )
        return cls(process)

    def is_named(self, worker: str) -> bool:
        """Whether this process is the worker of that name."""
        return worker.startswith(f"{socket.gethostname()}:{self._process.pid}:")

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it resume (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await self._process.wait()

    async def stop(self, seconds: float) -> None:
        """SIGTERM; SIGKILL after some seconds."""
        if not self.alive:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            await self.kill()


class ReplayFailedError(Exception):
    """The replay could not be run to its end."""
