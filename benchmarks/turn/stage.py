"""The servers and processes of the turn benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.servers import Missing, postgresql, redis_server, sqlite_url
from benchmarks.turn.agent import Tiers
from tests.helpers import Process, Urls, dirty, start_worker, upgrade
from tests.waiting import wait_until

DELAY = 2
"""Milliseconds that the proxy adds to each reply of SQL."""
_DRAIN = 60.0
"""Seconds until a worker has flushed everything, at most."""


class AgentProcess:
    """An agent in a process of its own."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have a command carried out; its answer."""
        self.tell(do, **arguments)
        return self.hear()

    def tell(self, do: str, **arguments: Any) -> None:
        """Have a command carried out; `hear` its answer."""
        self._process.say(json.dumps({"do": do, **arguments}))

    def hear(self) -> Any:
        """The answer to the last command."""
        return json.loads(self._process.hear())


@dataclass
class Stage:
    """What runs, and a way to start agents over it."""

    tiers: Tiers
    stack: ExitStack
    missing: str = ""
    """Why there is no PostgreSQL."""

    def start_agent(self, *, connections: int | None = None) -> AgentProcess:
        """A process; it ends with the stage."""
        tiers = self.tiers if connections is None else replace(self.tiers, connections=connections)
        return AgentProcess(self.stack.enter_context(Process("benchmarks.turn.agent", json.dumps(asdict(tiers)))))

    def drain(self) -> None:
        """Wait until the worker has flushed everything."""
        redis_url = self.tiers.worked_redis
        wait_until(lambda: dirty(redis_url) == 0, _DRAIN, "the worker has flushed everything")


@contextmanager
def opened() -> Iterator[Stage]:
    """Servers on the loopback interface; where there is no PostgreSQL the cache lies over SQLite."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server()).url
        try:
            server = stack.enter_context(postgresql())
        except Missing as error:
            database = stack.enter_context(sqlite_url())
            yield Stage(Tiers(redis, database), stack, str(error))
            return
        ours, worked, bare = (server.url(server.create_database()) for _ in range(3))
        proxy = stack.enter_context(Process("benchmarks.turn.delay", str(server.port), str(DELAY)))
        delayed = bare.replace(f":{server.port}/", f":{proxy.hear()}/")
        worked_redis = stack.enter_context(redis_server()).url
        yield Stage(Tiers(redis, ours, worked_redis, worked, bare, delayed), stack)


async def prepare(stage: Stage) -> None:
    """Bring the schemas up to date, and start the worker."""
    tiers = stage.tiers
    await upgrade(tiers.database)
    if tiers.worked_database:
        await upgrade(tiers.worked_database)
        stage.stack.enter_context(start_worker(Urls(tiers.worked_redis, tiers.worked_database)))
