"""Both tiers for commands, and a way to run commands in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from sessioncache import SessionCache
from sessioncache.cli import main
from tests.helpers import Urls, connect, upgrade


class Said(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object on the last line of standard output."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def rows(self) -> list[list[str]]:
        """The lines of standard output, taken apart at tabs."""
        return [line.split("\t") for line in self.out.splitlines()]


Run = Callable[..., Awaitable[Said]]


@pytest.fixture
async def urls(valkey_url: str, sqlite_url: str) -> Urls:
    """Valkey over SQLite, with the schema, empty."""
    await upgrade(sqlite_url)
    return Urls(valkey_url, sqlite_url)


@pytest.fixture
async def cache(urls: Urls) -> AsyncIterator[SessionCache]:
    """A cache of the app `app`."""
    async with connect(urls) as opened:
        yield opened


@pytest.fixture
def run(urls: Urls, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command over `urls`, or over others."""

    async def run(*words: str, on: Urls = urls) -> Said:
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*words, "--redis", on.redis, "--database", on.database])
        return Said(code, *capsys.readouterr())

    return run
