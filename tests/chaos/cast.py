"""Who is in the chaos run: names that agents, snapshots and the verdict agree upon."""

from __future__ import annotations

from collections.abc import Iterator

from sessioncache.scopes import ScopeRef
from tests import helpers

APP = "chaos"
AGENTS = 3
ACTORS = 4
"""Actors of one agent."""
USERS = 3
KEYS = ("k0", "k1", "k2", "k3")
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


def session_scopes() -> dict[tuple[str, str], ScopeRef]:
    """(User, session id) -> scope."""
    ids = {(user_of(actor), session_of(actor)) for actor in actors()}
    return {(user, session): helpers.session(user, session, APP) for user, session in sorted(ids)}


def user_scopes() -> dict[str, ScopeRef]:
    """User -> scope."""
    return {user: helpers.user(user, APP) for user in sorted({user_of(actor) for actor in actors()})}


def app_scope() -> ScopeRef:
    """The app's scope."""
    return helpers.app(APP)
