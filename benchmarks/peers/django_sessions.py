"""Django's cached_db sessions on PostgreSQL, with its Redis cache: a thread for each session that is in flight.

A Django session is one text and has no shared scopes: all keys of a turn lie in one session, which is loaded once and
saved once, as it likes best.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.peers.peer import SESSIONS, Count, changes, check, initial_state, turns
from benchmarks.peers.stage import Stage


class DjangoSessions:
    """Threads, each with a connection of its own that stays open."""

    @classmethod
    @asynccontextmanager
    async def open(cls, stage: Stage) -> AsyncIterator[DjangoSessions]:
        """Set Django up, and make its tables."""
        await asyncio.to_thread(_set_up, stage)
        yield cls()

    async def rate(self, in_flight: int, seconds: float) -> float:
        """See Peer."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(in_flight) as pool:
            keys = await asyncio.gather(*(loop.run_in_executor(pool, _create) for _ in range(SESSIONS)))
            count = Count(seconds)
            agents = [partial(_agent, keys, turns(agent, in_flight), count) for agent in range(in_flight)]
            await asyncio.gather(*(loop.run_in_executor(pool, agent) for agent in agents))
        return count.per_second()


def _set_up(stage: Stage) -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command
    from sqlalchemy.engine import make_url

    url = make_url(stage.database())
    database: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username}
    database |= {"HOST": url.host, "PORT": url.port, "CONN_MAX_AGE": None}
    settings.configure(
        SECRET_KEY="only for this run",
        INSTALLED_APPS=["django.contrib.sessions"],
        DATABASES={"default": database},
        CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": stage.redis.url}},
        SESSION_ENGINE="django.contrib.sessions.backends.cached_db",
    )
    django.setup()
    call_command("migrate", verbosity=0)
    _close()


def _create() -> str:
    store = _store(None)
    store.update(initial_state())
    store.create()
    return str(store.session_key)


def _agent(keys: list[str], turns_of_agent: Iterator[tuple[int, int]], count: Count) -> None:
    for number, turn in turns_of_agent:
        if count.over():
            break
        store = _store(keys[number])
        check(dict(store.items()))
        store.update(changes(turn))
        store.save()
        count.one()
    _close()


def _store(key: str | None) -> Any:
    from django.contrib.sessions.backends.cached_db import SessionStore

    return SessionStore(session_key=key)


def _close() -> None:
    from django.db import connections

    connections.close_all()
