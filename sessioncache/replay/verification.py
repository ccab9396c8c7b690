"""The verification: the model of the file == hot read == cold read == rows, and no `temp:` marker in the database."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from sessioncache.cache import SessionCache
from sessioncache.coordination.connecting import open_urls
from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.engine import create_engine
from sessioncache.hot.layout import Place
from sessioncache.primitives.names import TEMP_PREFIX
from sessioncache.primitives.scopes import app_ref, session_ref, user_ref
from sessioncache.replay.evidence import count_marker, decode_rows
from sessioncache.replay.model import Model, differences
from sessioncache.replay.processes import ReplayFailedError

_DRAIN = 120.0
"""Most seconds until everything of the run is flushed."""
_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """Differences to the model, by where they were found."""

    hot: int
    cold: int
    rows: int
    temp_leaks: int


async def drain(tiers: Tiers, app: str, model: Model) -> None:
    """Wait until nothing of the run is dirty."""
    places = _places(tiers, app, model)
    end = asyncio.get_running_loop().time() + _DRAIN
    while True:
        dirty: list[Place] = []
        for at in range(0, len(places), 256):
            part = places[at : at + 256]
            states = await tiers.hot.flush_state(part)
            dirty += [place for place, state in zip(part, states, strict=True) if state.marks]
        if not dirty:
            return
        if asyncio.get_running_loop().time() > end:
            raise ReplayFailedError(f"{len(dirty)} scopes were not flushed within {_DRAIN:g} s")
        places = dirty
        await asyncio.sleep(0.05)


async def verify(tiers: Tiers, redis_url: str, database_url: str, app: str, model: Model, marker: str) -> Verdict:
    """Compare everything with the model.  The cold read takes the database over for a moment, by an empty Redis."""
    installation = {"prefix": tiers.settings.prefix, "buckets": tiers.settings.buckets}
    hot = await _compare(redis_url, database_url, app, model, installation)
    async with AsyncExitStack() as stack:
        engine = create_engine(database_url)
        stack.push_async_callback(engine.dispose)
        rows = _count(model, await decode_rows(engine, app))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sessioncache-", ignore_cleanup_errors=True))
        empty, _ = await stack.enter_async_context(open_urls(None, None, folder))
        cold = await _compare(empty, database_url, app, model, installation)
        leaks = await count_marker(engine, marker)
    await tiers.fencing.register({place.ref.bucket for place in _places(tiers, app, model)})
    return Verdict(hot, cold, rows, leaks)


async def _compare(redis_url: str, database_url: str, app: str, model: Model, installation: dict[str, Any]) -> int:
    async with SessionCache.connect(redis_url, database_url, app=app, timeout=30, **installation) as cache:
        return _count(model, await _read_all(cache, model))


async def _read_all(cache: SessionCache, model: Model) -> Model:
    """What the cache shows of everything the model knows, each session by its merged state."""
    found = Model()
    turn = asyncio.Semaphore(_AT_ONCE)

    async def read_session(user: str, session_id: str) -> None:
        async with turn:
            state = (await cache.get(user, session_id)).state
        plain = found.sessions[user, session_id] = {}
        for key in state:
            if key.startswith("user:"):
                found.users.setdefault(user, {})[key.removeprefix("user:")] = state[key]
            elif key.startswith("app:"):
                found.app[key.removeprefix("app:")] = state[key]
            elif not key.startswith(TEMP_PREFIX):
                plain[key] = state[key]

    await asyncio.gather(*(read_session(*identity) for identity in model.sessions))
    return found


def _count(model: Model, found: Model) -> int:
    sessions = sum(
        differences(model.sessions.get(identity, {}), found.sessions.get(identity, {}))
        + (identity not in found.sessions)
        for identity in model.sessions.keys() | found.sessions.keys()
    )
    users = sum(
        differences(model.users.get(user, {}), found.users.get(user, {}))
        for user in model.users.keys() | found.users.keys()
    )
    return sessions + users + differences(dict(model.app), dict(found.app))


def _places(tiers: Tiers, app: str, model: Model) -> list[Place]:
    n = tiers.settings.buckets
    refs = [session_ref(n, "", app, user, session) for user, session in model.sessions]
    refs += [user_ref(n, "", app, user) for user in model.users]
    return [tiers.layout.place(ref) for ref in (*refs, app_ref(n, "", app))]
