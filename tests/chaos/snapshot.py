"""Both tiers looked at from behind the wires: what is dirty at the moment of a fault, and what is there at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from sessioncache import SessionCache, SessionNotFoundError
from sessioncache.primitives.revisions import DIGITS, revision_time
from sessioncache.primitives.scopes import ScopeRef, namespace_ref
from sessioncache.primitives.timestamps import json_of
from tests.chaos import cells
from tests.chaos.cast import (
    APP,
    KEYS,
    RUNS,
    SPACE,
    TEMP_MARK,
    app_scope,
    life_key,
    run_scopes,
    session_scopes,
    user_scopes,
)
from tests.chaos.cells import number_of
from tests.helpers import Urls, fetch, scope_key, stored_values

Values = dict[str, Any]
"""Cell -> number of its value, list, or None for what was deleted; the life of a session under the session's cell."""


@dataclass(frozen=True, slots=True)
class Dirt:
    """What only the tier had that was made to forget: what was dirty in Redis, or what SQL had and Redis had not."""

    at: float
    cells: Values = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    """By how much the other tier was behind."""
    fell: Values = field(default_factory=dict)
    """Where SQL was made to forget: what it fell back to.  That a cell was durable before says nothing any more."""
    of_sql: bool = False
    """Whether it was SQL that was made to forget."""
    unsaid: bool = False
    """Whether nobody was told of that before work went on."""

    def size(self, stored: Mapping[str, Any]) -> int:
        """How many writes that is at most, given what SQL has."""
        lists = {cell: value for cell, value in self.cells.items() if isinstance(value, list)}
        unsaved = sum(len(value) - len(stored.get(cell) or []) for cell, value in lists.items())
        return len(self.cells) - len(lists) + max(0, unsaved) + sum(self.counters.values())


@dataclass(frozen=True, slots=True)
class Private:
    """What is private to a session; keys of its namespace bear its name."""

    values: Values
    title: str
    messages: int
    tokens: int
    misdated: list[str]
    """Keys of which value and time do not belong together."""

    @property
    def head(self) -> tuple[str, int, int]:
        """Title, messages, tokens."""
        return self.title, self.messages, self.tokens


# ---- dirt


def dirt(client: redis.Redis, stored: Mapping[str, Any]) -> Dirt:
    """What is dirty now; `stored`: what SQL has at least."""
    found = Dirt(time.monotonic())
    for (user, session), scope in session_scopes().items():
        _note_session(found, cells.life_cell(user, session), life_key(session), _both(client, scope), stored)
    for user, scope in run_scopes().items():
        for space, one in zip(("", f"{SPACE}/"), _both(client, scope), strict=True):
            found.cells.update({f"r|{user}|{space}{key}": one.values.get(key) for key in one.marks - {"!"}})
    for user, scope in user_scopes().items():
        _note_shared(found, f"u|{user}", _scope(client, scope), stored)
    _note_shared(found, "a", _scope(client, app_scope()), stored)
    return found


def _note_session(found: Dirt, cell: str, key_of_life: str, both: tuple[Hot, Hot], stored: Mapping[str, Any]) -> None:
    """What is dirty of a session and of its namespace; with the head its title and counter are."""
    own, space = both
    life = number_of(own.values.get(key_of_life)) if b"x" not in own.fields else None
    if not (own.marks or space.marks):
        return
    found.cells[cell] = life
    for prefix, one in (("", own), (f"{SPACE}/", space)):
        for key in one.dirty:
            found.cells[f"{cell}|{life}|{prefix}{key}"] = number_of(one.values.get(key))
    title, count = own.fields.get(b"t", b"").decode(), int(own.fields.get(b"m", 0))
    told = cells.head_cells(f"{cell}|{life}", title, count, count * cells.TOKENS_A_MESSAGE)
    messages = f"{cell}|{life}|{cells.MESSAGES}"
    found.counters[messages] = max(0, told.pop(messages, 0) - int(stored.get(messages) or 0))
    found.cells.update(told)


def _note_shared(found: Dirt, prefix: str, scope: Hot, stored: Mapping[str, Any]) -> None:
    for key in scope.marks - {"!"}:
        cell = f"{prefix}|{key}"
        if key == "total":
            found.counters[cell] = max(0, int(scope.values.get(key) or 0) - int(stored.get(cell) or 0))
        else:
            found.cells[cell] = number_of(scope.values.get(key))


def fall(client: redis.Redis, before: Values, after: Values, *, unsaid: bool) -> Dirt:
    """What is lost when SQL falls back from what it has to what a backup has: of what is hot, nothing."""
    found, hot = Dirt(time.monotonic(), of_sql=True, unsaid=unsaid), _hot_scopes(client)
    for cell in sorted(before.keys() | after.keys()):
        if before.get(cell) == after.get(cell) or _scope_of(cell).id in hot:
            continue
        found.fell[cell] = after.get(cell)
        if cell.endswith(("|total", f"|{cells.MESSAGES}")):
            found.counters[cell] = max(0, int(before.get(cell) or 0) - int(after.get(cell) or 0))
        else:
            found.cells[cell] = before.get(cell)
    return found


def _scope_of(cell: str) -> ScopeRef:
    """Where a cell lies."""
    kind, *rest = cell.split("|")
    if kind == "a":
        return app_scope()
    if kind == "u":
        return user_scopes()[rest[0]]
    scope = run_scopes()[rest[0]] if kind == "r" else session_scopes()[rest[0], rest[1]]
    return namespace_ref(scope, SPACE) if rest[-1].startswith(f"{SPACE}/") else scope


def _hot_scopes(client: redis.Redis) -> set[str]:
    """The ids of the scopes of which Redis knows all, deleted sessions too."""
    sessions = [*session_scopes().values(), *run_scopes().values()]
    scopes = [*sessions, *(namespace_ref(one, SPACE) for one in sessions), *user_scopes().values(), app_scope()]
    found = set()
    for scope in scopes:
        key: Any = scope_key(scope)
        known, flagged = client.hmget(key, ["i", "y"])
        present = client.hget(f"{key.split(':h:')[0]}:ctl", "incarnation")
        found |= {scope.id} if known and known == present and not flagged else set()
    return found


@dataclass(frozen=True, slots=True)
class Hot:
    """One scope in Redis."""

    marks: set[str]
    """Keys that are dirty; '!' the head."""
    values: Values
    """Those that live."""
    fields: dict[bytes, bytes]

    @property
    def dirty(self) -> set[str]:
        """The keys that are dirty: of a clear that was not flushed, which marks the head alone, all that it took."""
        is_cleared = "!" in self.marks and self.fields.get(b"c", b"") > self.fields.get(b"f", b"")
        return (self.marks - {"!"}) | ({key for key in KEYS if key not in self.values} if is_cleared else set())


def _both(client: redis.Redis, scope: ScopeRef) -> tuple[Hot, Hot]:
    """A session and its namespace."""
    return _scope(client, scope), _scope(client, namespace_ref(scope, SPACE))


def _scope(client: redis.Redis, scope: ScopeRef) -> Hot:
    key = scope_key(scope)
    pipe = client.pipeline(transaction=True)
    pipe.smembers(key.replace(":h:", ":d:"))
    pipe.hgetall(key)
    marks, fields = pipe.execute()
    values = {
        name[1:].decode(): json.loads(json_of(text, DIGITS))
        for name, text in fields.items()
        if name.startswith(b"=") and len(text) > DIGITS
    }
    return Hot({name.decode().removeprefix("=") for name in marks}, values, fields)


# ---- the durable tier


def stored_cells(database_url: str) -> Values:
    """All cells of SQL."""
    found: Values = {}
    for (user, session), scope in session_scopes().items():
        found |= _session_cells(user, session, _stored(database_url, scope))
    for user, scope in run_scopes().items():
        found |= _run_cells(user, _stored(database_url, scope))
    for user, scope in user_scopes().items():
        found |= _shared_cells(f"u|{user}", stored_values(database_url, scope) or {})
    return found | _shared_cells("a", stored_values(database_url, app_scope()) or {})


_HEAD = """SELECT title, message_count, token_total, cleared, birth FROM sessioncache_session
WHERE scope_id = ? AND NOT deleted"""
_SPACES = "SELECT namespace, cleared FROM sessioncache_namespace WHERE scope_id = ?"
_ROWS = "SELECT namespace, key, value, revision, given_at FROM sessioncache_state WHERE scope_id = ? AND NOT deleted"


def _stored(database_url: str, scope: ScopeRef) -> Private | None:
    heads = fetch(database_url, _HEAD, scope.id)
    if not heads:
        return None
    title, messages, tokens, cleared, birth = heads[0]
    dead = {"": cleared, **{space: max(birth - 1, own) for space, own in fetch(database_url, _SPACES, scope.id)}}
    living = [row for row in fetch(database_url, _ROWS, scope.id) if row[3] > dead.get(row[0], birth - 1)]
    values, misdated = {}, []
    for space, key, text, _, given in living:
        name, value = f"{space}/{key}" if space else key, json.loads(text)
        values[name] = value
        misdated += [name] * cells.is_misdated(value, None if given is None else revision_time(given))
    return Private(values, title, messages, tokens, misdated)


_DEAD = """SELECT 'session ' || h.session_id || ' of ' || h.user_id, e.namespace, e.key, e.revision
    FROM sessioncache_state AS e JOIN sessioncache_session AS h ON h.scope_id = e.scope_id
    LEFT JOIN sessioncache_namespace AS n ON n.scope_id = e.scope_id AND n.namespace = e.namespace
    WHERE e.revision <= CASE WHEN h.deleted OR e.namespace = '' THEN h.cleared
        WHEN n.cleared >= h.birth THEN n.cleared ELSE h.birth - 1 END
UNION ALL SELECT 'user ' || h.user_id, e.namespace, e.key, e.revision
    FROM sessioncache_state AS e JOIN sessioncache_user_scope AS h ON h.scope_id = e.scope_id
    WHERE e.revision <= h.cleared
UNION ALL SELECT 'app ' || h.app, e.namespace, e.key, e.revision
    FROM sessioncache_state AS e JOIN sessioncache_app_scope AS h ON h.scope_id = e.scope_id
    WHERE e.revision <= h.cleared
"""


def dead_rows(database_url: str) -> list[str]:
    """Rows of SQL that the heads there tell to be dead: the flush that told it takes them out, and none comes after."""
    return [f"{of}: {space}/{key} of revision {revision}" for of, space, key, revision in fetch(database_url, _DEAD)]


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
    found: Values = {}
    async with SessionCache.connect(urls.redis, urls.database, app=APP, timeout=20) as cache:
        for user, session in session_scopes():
            found |= _session_cells(user, session, await _private(cache, user, session))
        for user in user_scopes():
            found |= _run_cells(user, await _private(cache, user, RUNS))
            found |= _shared_cells(f"u|{user}", await _shared(cache.user_scope(user)))
        return found | _shared_cells("a", await _shared(cache.app_scope()))


async def _private(cache: SessionCache, user: str, session: str) -> Private | None:
    try:
        handle = await cache.get(user, session)
    except SessionNotFoundError:
        return None
    state = handle.state
    values = {key: state[key] for key in state if not key.startswith(("user:", "app:", "temp:"))}
    values |= {f"{SPACE}/{key}": value for key, value in await handle.namespace(SPACE).items()}
    misdated = [record.key for record in await handle.records() if cells.is_misdated(record.value, record.updated_at)]
    return Private(values, handle.title, handle.message_count, handle.token_total, misdated)


async def _shared(scope: Any) -> Values:
    await scope.refresh()
    return dict(scope.state)


def _session_cells(user: str, session: str, private: Private | None) -> Values:
    cell = cells.life_cell(user, session)
    if private is None:
        return {cell: None}
    life = number_of(private.values.get(life_key(session)))
    found = {f"{cell}|{life}|{key}": number_of(value) for key, value in private.values.items()}
    found |= {f"{cell}|{life}|{key}{cells.MISDATED}": number_of(private.values[key]) for key in private.misdated}
    return {cell: life, **found, **cells.head_cells(f"{cell}|{life}", *private.head)}


def _run_cells(user: str, private: Private | None) -> Values:
    return {f"r|{user}|{key}": value for key, value in private.values.items()} if private else {}


def _shared_cells(prefix: str, state: Values) -> Values:
    return {f"{prefix}|{key}": number_of(value) for key, value in state.items()}
