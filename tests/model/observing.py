"""What both tiers hold, read past the code under test: nothing is hydrated, registered or renewed by looking."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from sessioncache.hot.layout import Layout
from sessioncache.revisions import DIGITS, ZERO, decode_revision, encode_revision
from sessioncache.scopes import ScopeKind, ScopeRef, app_ref, bucket_of, session_ref, user_ref
from sessioncache.values import decode_value
from tests.keys import Held
from tests.model.state import SESSIONS, USER, Life, Values, World

BUCKETS = 2
# The app's scope lies in another bucket than the user's: the two are registered apart.
APP = next(name for name in "abcdefgh" if bucket_of(BUCKETS, "", name) != bucket_of(BUCKETS, "", name, USER))
PREFIX = "m"
LAYOUT = Layout(PREFIX, BUCKETS)

Row = tuple[int, str, bool]
"""Revision, text, deleted."""
Bytes = Mapping[bytes, bytes]

_TABLES = {ScopeKind.SESSION: "session", ScopeKind.USER: "user_scope", ScopeKind.APP: "app_scope"}


def session_scope(name: str) -> ScopeRef:
    """A session's own scope."""
    return session_ref(BUCKETS, "", APP, USER, name)


USER_SCOPE = user_ref(BUCKETS, "", APP, USER)
APP_SCOPE = app_ref(BUCKETS, "", APP)
SCOPES = [*(session_scope(name) for name in SESSIONS), USER_SCOPE, APP_SCOPE]


@dataclass(frozen=True)
class Sql:
    """What the durable tier holds."""

    heads: dict[str, tuple[int, int, int, bool]]
    """Scope id -> revision, birth, cleared, deleted."""
    rows: dict[str, dict[str, Row]]
    fences: dict[int, str]


def read_sql(connection: sqlite3.Connection) -> Sql:
    """All rows."""
    heads = {
        row[0]: (row[1], row[2], row[3], bool(row[4]))
        for table in _TABLES.values()
        for row in connection.execute(f"SELECT scope_id, revision, birth, cleared, deleted FROM sessioncache_{table}")
    }
    rows: dict[str, dict[str, Row]] = {}
    for scope, key, revision, text, gone in connection.execute(
        "SELECT scope_id, key, revision, value, deleted FROM sessioncache_state"
    ):
        rows.setdefault(scope, {})[key] = (revision, text, bool(gone))
    return Sql(heads, rows, dict(connection.execute("SELECT bucket, incarnation FROM sessioncache_fence").fetchall()))


def read_hot(client: redis.Redis) -> dict[str, Held]:
    """Every key of the server, in two round trips."""
    names: Any = client.keys("*")
    keys = sorted(name.decode() for name in names)
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.type(key)
        pipe.pttl(key)
    told = pipe.execute()
    kinds = [kind.decode() for kind in told[::2]]
    pipe = client.pipeline(transaction=False)
    for key, kind in zip(keys, kinds, strict=True):
        if kind == "hash":
            pipe.hgetall(key)
        elif kind == "set":
            pipe.smembers(key)
        else:
            pipe.zrange(key, 0, -1)
    contents = [set(one) if isinstance(one, list) else one for one in pipe.execute()]
    return {k: Held(t, ttl != -1, c) for k, t, ttl, c in zip(keys, kinds, told[1::2], contents, strict=True)}


@dataclass
class Side:
    """One scope as one tier has it."""

    life: int = 0
    """The revision of its birth, or of its death."""
    birth: int = 0
    cleared: int = 0
    alive: bool = False
    entries: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Revision and text (empty: deleted) of each key."""


@dataclass(frozen=True)
class View:
    """Both tiers at one moment."""

    hot: Mapping[str, Held]
    sql: Sql
    replid: bytes

    def marks(self) -> set[tuple[str, bytes]]:
        """Scope id and field of everything that is dirty."""
        found = set()
        for ref in SCOPES:
            held = self.hot.get(LAYOUT.place(ref).dirty.decode())
            found |= {(ref.id, mark) for mark in (held.content if held else ())}
        return found

    def is_ready(self, ref: ScopeRef) -> bool:
        """Whether the scope is hot and can be used without SQL."""
        control = self._hash(LAYOUT.control(ref.bucket))
        fields = self._hash(LAYOUT.hash(ref.bucket, ref.member))
        if control.get(b"replid") != self.replid or control.get(b"registered") != b"1" or b"y" in fields:
            return False
        return bool(fields) and fields.get(b"i") == control.get(b"incarnation")

    def world(self) -> World:
        """What can be read now, or could once everything is hot and revalidated."""
        lives: dict[str, Life | None] = {}
        for name in SESSIONS:
            ref = session_scope(name)
            side = self._scope(ref)
            birth = encode_revision(side.birth)
            lives[name] = Life(birth, _living(side), self._temp(ref, birth)) if side.alive else None
        return World(lives, _living(self._scope(USER_SCOPE)), _living(self._scope(APP_SCOPE)))

    def sql_world(self) -> World:
        """What SQL alone has."""
        return View({}, self.sql, b"").world()

    def lacking(self) -> list[str]:
        """What is clean, and yet not the same in both tiers."""
        found = []
        marks = self.marks()
        for ref in filter(self.is_ready, SCOPES):
            hot, stored = _hot_side(ref, self._hash(LAYOUT.hash(ref.bucket, ref.member))), self._stored(ref)
            if (ref.id, b"!") not in marks and hot.life != stored.life:
                found.append(f"the head of {ref}")
            for key, entry in hot.entries.items():
                if (ref.id, b"=" + key.encode()) not in marks and stored.entries.get(key) != entry:
                    found.append(f"{key!r} of {ref}: {entry} is hot, SQL has {stored.entries.get(key)}")
            for key, (revision, text) in stored.entries.items():
                if key not in hot.entries and text and stored.alive and revision > max(hot.cleared, stored.cleared):
                    found.append(f"{key!r} of {ref}: SQL has it, and it is not hot")
        return found

    def _hash(self, key: bytes) -> Bytes:
        held = self.hot.get(key.decode())
        return held.content if held else {}

    def _temp(self, ref: ScopeRef, birth: bytes) -> Values:
        fields = self._hash(LAYOUT.place(ref).temp)
        if fields.get(b"b") != birth:
            return {}
        return {name[1:].decode(): decode_value(v[DIGITS:]) for name, v in fields.items() if name[:1] == b"="}

    def _scope(self, ref: ScopeRef) -> Side:
        fields, stored = self._hash(LAYOUT.hash(ref.bucket, ref.member)), self._stored(ref)
        if not fields:
            return stored
        hot = _hot_side(ref, fields)
        if self.is_ready(ref):
            return hot
        control = self._hash(LAYOUT.control(ref.bucket))
        own = control.get(b"replid") == self.replid and fields.get(b"i") == control.get(b"incarnation")
        mine = {mark for scope, mark in self.marks() if scope == ref.id} if own else set()
        return _merged(hot, stored, mine)

    def _stored(self, ref: ScopeRef) -> Side:
        head = self.sql.heads.get(ref.id)
        rows = self.sql.rows.get(ref.id, {})
        entries = {key: (revision, b"" if gone else text.encode()) for key, (revision, text, gone) in rows.items()}
        if head is None:
            return Side(alive=ref.kind is not ScopeKind.SESSION, entries=entries)
        _, birth, cleared, gone = head
        return Side(cleared if gone else birth, birth, cleared, not gone, entries)


def _hot_side(ref: ScopeRef, fields: Bytes) -> Side:
    birth, cleared = (decode_revision(fields.get(name, ZERO)) for name in (b"b", b"c"))
    gone = b"x" in fields
    entries = {n[1:].decode(): (decode_revision(v[:DIGITS]), v[DIGITS:]) for n, v in fields.items() if n[:1] == b"="}
    return Side(cleared if gone else birth, birth, cleared, not gone, entries)


def _merged(hot: Side, stored: Side, mine: set[bytes]) -> Side:
    """What revalidation has to make of it: the newest life, of each key the newest entry; what is `mine` stays."""
    head = hot if b"!" in mine or hot.life >= stored.life else stored
    side = Side(head.life, head.birth, head.cleared, head.alive, dict(stored.entries))
    for key, entry in hot.entries.items():
        if b"=" + key.encode() in mine or entry[0] > side.entries.get(key, (0, b""))[0]:
            side.entries[key] = entry
    return side


def _living(side: Side) -> Values:
    return {
        key: decode_value(text)
        for key, (revision, text) in side.entries.items()
        if text and revision > side.cleared and side.alive
    }
