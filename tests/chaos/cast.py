"""Who is in the chaos run: names that agents, snapshots and the verdict agree upon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from sessioncache import SessionCache
from sessioncache.primitives.scopes import ScopeRef
from tests import helpers

APP = "chaos"
AGENTS = 3
ACTORS = 4
"""Actors of one agent."""
USERS = 3
KEYS = ("k0", "k1", "k2", "k3")
SPACE = "skills"
"""The namespace that actors use."""
RUNS = "runs"
"""The session of each user for which all of its actors fight, and its list of what runners did."""
TEMP_MARK = "temp-value-that-must-never-be-in-sql"


def actors() -> Iterator[str]:
    """All actors' names."""
    return (f"{agent}-{actor}" for agent in agents() for actor in range(ACTORS))


def agents() -> list[str]:
    """All agents' names."""
    return [f"a{number}" for number in range(AGENTS)]


def user_of(actor: str) -> str:
    """The user whom an actor serves; several actors of all agents share one."""
    agent, number = actor.removeprefix("a").split("-")
    return f"u{(int(agent) + int(number)) % USERS}"


def session_of(actor: str) -> str:
    """The id of an actor's session."""
    return f"s-{actor}"


def fork_of(actor: str) -> str:
    """The id of the fork of an actor's session."""
    return f"{session_of(actor)}-fork"


def life_key(session: str) -> str:
    """The key whose number tells one life from another: a fork has a copy of what its parent bore as a mark."""
    return "mark" if session.endswith("-fork") else "life"


def session_scopes() -> dict[tuple[str, str], ScopeRef]:
    """(User, session id) -> scope, of the actors' own sessions and their forks."""
    ids = {(user_of(actor), name) for actor in actors() for name in (session_of(actor), fork_of(actor))}
    return {(user, session): helpers.session(user, session, APP) for user, session in sorted(ids)}


def run_scopes() -> dict[str, ScopeRef]:
    """User -> scope of the session for which actors fight."""
    return {user: helpers.session(user, RUNS, APP) for user in user_scopes()}


def user_scopes() -> dict[str, ScopeRef]:
    """User -> scope."""
    return {user: helpers.user(user, APP) for user in sorted({user_of(actor) for actor in actors()})}


def app_scope() -> ScopeRef:
    """The app's scope."""
    return helpers.app(APP)


async def open_cache(redis_url: str, database_url: str, timeout: float = 2.0) -> SessionCache:
    """A cache of the app as soon as the servers let us."""
    while True:
        try:
            return await SessionCache.connect(redis_url, database_url, app=APP, timeout=timeout)
        except ConnectionError:
            await asyncio.sleep(0.1)
