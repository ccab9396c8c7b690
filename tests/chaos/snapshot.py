"""Both tiers looked at from behind the wires: what is dirty at the moment of a fault, and what is there at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from sessioncache import SessionCache, SessionNotFoundError
from sessioncache.revisions import DIGITS
from sessioncache.scopes import ScopeRef
from tests.chaos.cast import APP, TEMP_MARK, app_scope, session_scopes, user_scopes
from tests.helpers import Urls, fetch, scope_key, stored_values

Values = dict[str, Any]
"""Cell -> number of its value, list, or None for what was deleted; the life of a session under the session's cell."""


@dataclass(frozen=True, slots=True)
class Dirt:
    """What was dirty when Redis was made to forget."""

    at: float
    cells: Values = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    """By how much SQL was behind."""

    def size(self, stored: Mapping[str, Any]) -> int:
        """How many writes that is at most, given what SQL has."""
        lists = {cell: value for cell, value in self.cells.items() if isinstance(value, list)}
        unsaved = sum(len(value) - len(stored.get(cell) or []) for cell, value in lists.items())
        return len(self.cells) - len(lists) + max(0, unsaved) + sum(self.counters.values())


def number_of(value: Any) -> Any:
    """What the journal knows a value by."""
    return value["n"] if isinstance(value, dict) else value


# ---- dirt


def dirt(client: redis.Redis, stored: Mapping[str, Any]) -> Dirt:
    """What is dirty now; `stored`: what SQL has at least."""
    found = Dirt(time.monotonic())
    for (user, session), scope in session_scopes().items():
        marks, values = _scope(client, scope)
        life = number_of(values.get("life")) if not _is_deleted(client, scope) else None
        if marks:
            found.cells[f"s|{user}|{session}"] = life
            cells = {f"s|{user}|{session}|{life}|{key}": number_of(values.get(key)) for key in marks - {"!"}}
            found.cells.update(cells)
    for user, scope in user_scopes().items():
        _note_shared(found, f"u|{user}", _scope(client, scope), stored)
    _note_shared(found, "a", _scope(client, app_scope()), stored)
    return found


def _note_shared(found: Dirt, prefix: str, scope: tuple[set[str], Values], stored: Mapping[str, Any]) -> None:
    marks, values = scope
    for key in marks - {"!"}:
        cell = f"{prefix}|{key}"
        if key == "total":
            found.counters[cell] = max(0, int(values.get(key) or 0) - int(stored.get(cell) or 0))
        else:
            found.cells[cell] = number_of(values.get(key))


def _scope(client: redis.Redis, scope: ScopeRef) -> tuple[set[str], Values]:
    """The marks of a scope ('!' the head) and its living values."""
    key = scope_key(scope)
    pipe = client.pipeline(transaction=True)
    pipe.smembers(key.replace(":h:", ":d:"))
    pipe.hgetall(key)
    marks, fields = pipe.execute()
    names = {name.decode() for name in marks}
    values = {
        name[1:].decode(): json.loads(text[DIGITS:])
        for name, text in fields.items()
        if name.startswith(b"=") and len(text) > DIGITS
    }
    return {name.removeprefix("=") for name in names}, values


def _is_deleted(client: redis.Redis, scope: ScopeRef) -> bool:
    return bool(client.hexists(scope_key(scope), "x"))


# ---- the durable tier


def stored_cells(database_url: str, *, shared_only: bool = False) -> Values:
    """All cells of SQL."""
    cells: Values = {}
    for (user, session), scope in ({} if shared_only else session_scopes()).items():
        cells |= _session_cells(user, session, stored_values(database_url, scope))
    for user, scope in user_scopes().items():
        cells |= _shared_cells(f"u|{user}", stored_values(database_url, scope) or {})
    return cells | _shared_cells("a", stored_values(database_url, app_scope()) or {})


def count_temp(database_url: str) -> int:
    """How many rows of SQL hold anything of a ``temp:`` key."""
    query = "SELECT count(*) FROM sessioncache_state WHERE value LIKE ? OR key LIKE 'temp:%' OR key = 'secret'"
    return int(
        fetch(database_url, query.replace("%'", "%%'" if "postgresql" in database_url else "%'"), f"%{TEMP_MARK}%")[0][
            0
        ]
    )


# ---- the cache


async def cached_cells(urls: Urls) -> Values:
    """All cells as a client reads them."""
    cells: Values = {}
    async with SessionCache.connect(urls.redis, urls.database, app=APP, timeout=20) as cache:
        for user, session in session_scopes():
            cells |= _session_cells(user, session, await _private(cache, user, session))
        for user in user_scopes():
            cells |= _shared_cells(f"u|{user}", await _shared(cache.user_scope(user)))
        return cells | _shared_cells("a", await _shared(cache.app_scope()))


async def _private(cache: SessionCache, user: str, session: str) -> Values | None:
    try:
        state = (await cache.get(user, session)).state
    except SessionNotFoundError:
        return None
    return {key: state[key] for key in state if not key.startswith(("user:", "app:", "temp:"))}


async def _shared(scope: Any) -> Values:
    await scope.refresh()
    return dict(scope.state)


def _session_cells(user: str, session: str, state: Values | None) -> Values:
    cell = f"s|{user}|{session}"
    if state is None:
        return {cell: None}
    life = number_of(state.get("life"))
    return {cell: life} | {f"{cell}|{life}|{key}": number_of(value) for key, value in state.items()}


def _shared_cells(prefix: str, state: Values) -> Values:
    return {f"{prefix}|{key}": number_of(value) for key, value in state.items()}
