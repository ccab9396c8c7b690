"""What both tiers hold, read past the code under test: nothing is hydrated, registered or renewed by looking."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis

from sessioncache.hot.layout import Layout
from sessioncache.primitives.revisions import DIGITS, ZERO, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind, ScopeRef, app_ref, bucket_of, namespace_ref, session_ref, user_ref
from sessioncache.primitives.timestamps import date_of, dated, json_of
from sessioncache.primitives.values import decode_value
from tests.keys import Held
from tests.model.state import SESSIONS, SPACES, USER, Life, Told, Values, World

BUCKETS = 2
# The app's scope lies in another bucket than the user's: the two are registered apart.
APP = next(name for name in "abcdefgh" if bucket_of(BUCKETS, "", name) != bucket_of(BUCKETS, "", name, USER))
PREFIX = "m"
POISON = "poison"
"""A text that the database refuses while it is told to."""
LAYOUT = Layout(PREFIX, BUCKETS)

Row = tuple[int, str, bool]
"""Revision, text with its date, deleted."""
Bytes = Mapping[bytes, bytes]

_SHARED = ("user_scope", "app_scope")
_HEAD = "SELECT scope_id, revision, coalesce(flushed, revision), birth, cleared, deleted FROM sessioncache_"
_SESSION_HEAD = (
    "SELECT scope_id, revision, coalesce(flushed, revision), birth, cleared, deleted, updated,"
    " title, message_count, token_total, forked_from"
    " FROM sessioncache_session"
)


def session_scope(name: str) -> ScopeRef:
    """A session's own scope."""
    return session_ref(BUCKETS, "", APP, USER, name)


USER_SCOPE = user_ref(BUCKETS, "", APP, USER)
APP_SCOPE = app_ref(BUCKETS, "", APP)
NAMESPACES = {(name, space): namespace_ref(session_scope(name), space) for name in SESSIONS for space in SPACES}
"""Session and name -> scope."""
SCOPES = [*(session_scope(name) for name in SESSIONS), USER_SCOPE, APP_SCOPE, *NAMESPACES.values()]
_OWN_IDS = {(ref.holder, ref.namespace): ref.id for ref in NAMESPACES.values()}


class StoredHead(NamedTuple):
    """A head as the durable tier has it."""

    revision: int = 0
    flushed: int = 0
    birth: int = 0
    cleared: int = 0
    deleted: bool = False
    updated: int = 0
    told: Told = Told()


@dataclass(frozen=True)
class Sql:
    """What the durable tier holds."""

    heads: dict[str, StoredHead]
    """By scope id."""
    rows: dict[str, dict[str, Row]]
    """Scope id, of a namespace its own -> key -> row."""
    fences: dict[int, str]
    purged: dict[int, int] = field(default_factory=dict)
    """Bucket -> the largest revision that purging ever took out."""
    spaces: dict[str, tuple[int, int]] = field(default_factory=dict)
    """A namespace's own id -> up to where its rows are dead, and the scope revision of its last flush."""

    def cleared(self, ref: ScopeRef) -> int:
        """Up to where the rows of a scope are dead."""
        head = self.heads.get(ref.rows_id, StoredHead())
        return (
            max(head.birth - 1, self.spaces.get(ref.id, (0, 0))[0]) if ref.holder and not head.deleted else head.cleared
        )

    def flushed(self, ref: ScopeRef) -> int:
        """The scope revision of its last flush; 0: nobody knows."""
        return self.spaces.get(ref.id, (0, 0))[1] if ref.holder else self.heads.get(ref.rows_id, StoredHead()).flushed


def _shared_head(revision: int, flushed: int, birth: int, cleared: int, deleted: int) -> StoredHead:
    return StoredHead(revision, flushed, birth, cleared, bool(deleted))


def _session_head(revision: int, flushed: int, birth: int, cleared: int, deleted: int, *more: Any) -> StoredHead:
    updated, *told = more
    return StoredHead(revision, flushed, birth, cleared, bool(deleted), updated, Told(*told))


def read_sql(connection: sqlite3.Connection) -> Sql:
    """All rows."""
    heads = {row[0]: _shared_head(*row[1:]) for table in _SHARED for row in connection.execute(_HEAD + table)}
    for row in connection.execute(_SESSION_HEAD):
        heads[row[0]] = _session_head(*row[1:])
    rows: dict[str, dict[str, Row]] = {}
    for scope, space, key, revision, json, at, gone in connection.execute(
        "SELECT scope_id, namespace, key, revision, value, given_at, deleted FROM sessioncache_state"
    ):
        text = dated(json.encode(), at).decode()
        rows.setdefault(_OWN_IDS.get((scope, space), scope), {})[key] = (revision, text, bool(gone))
    fences = dict(connection.execute("SELECT bucket, incarnation FROM sessioncache_fence").fetchall())
    purged = dict(connection.execute("SELECT bucket, revision FROM sessioncache_purged").fetchall())
    told = connection.execute("SELECT scope_id, namespace, cleared, revision FROM sessioncache_namespace")
    spaces = {_OWN_IDS[scope, space]: (cleared, revision) for scope, space, cleared, revision in told}
    return Sql(heads, rows, fences, purged, spaces)


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
    updated: int = 0
    told: Told = field(default_factory=Told)
    dropped: int = 0
    """Up to where what it has not is deleted (hot)."""

    def head(self) -> object:
        """What has to be the same in both tiers where nothing is dirty."""
        return (self.life, self.updated, self.told) if self.alive else self.life


class Origin(NamedTuple):
    """By what a server is known."""

    replid: bytes = b""
    run: bytes = b""
    fed: bytes = b""
    """Bytes that it has taken from a primary."""


@dataclass(frozen=True)
class View:
    """Both tiers at one moment."""

    hot: Mapping[str, Held]
    sql: Sql
    origin: Origin

    def incarnation(self, bucket: int) -> bytes | None:
        """The incarnation of a bucket, also where only the replication id is another one; None: it gets a new one."""
        control = self._hash(LAYOUT.control(bucket))
        known = control.get(b"incarnation")
        if known is None or control.get(b"replid") == self.origin.replid:
            return known
        same = (control.get(b"run"), control.get(b"fed")) == self.origin[1:]
        return known if same and self.sql.fences.get(bucket) == known.decode() else None

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
        if control.get(b"registered") != b"1" or b"y" in fields:
            return False
        return bool(fields) and fields.get(b"i") == self.incarnation(ref.bucket)

    def world(self) -> World:
        """What can be read now, or could once everything is hot and revalidated."""
        lives: dict[str, Life | None] = {}
        for name in SESSIONS:
            ref = session_scope(name)
            side = self._scope(ref)
            birth = encode_revision(side.birth)
            lives[name] = None
            if side.alive:
                spaces = {space: self._space(NAMESPACES[name, space], side.birth) for space in SPACES}
                own, temp = _living(side), self._temp(ref, birth)
                lives[name] = Life(birth, own, temp, spaces, side.told, side.updated, _dates(side))
        return World(lives, _living(self._scope(USER_SCOPE)), _living(self._scope(APP_SCOPE)))

    def sql_world(self) -> World:
        """What SQL alone has."""
        return View({}, self.sql, Origin()).world()

    def lacking(self) -> dict[tuple[str, bytes], str]:
        """What is clean, and yet not the same in both tiers, by scope id and field."""
        found = {}
        marks = self.marks()
        for ref in filter(self.is_in_use, SCOPES):
            hot, stored = self._hot(ref), self._stored(ref)
            purged = not hot.alive and ref.rows_id not in self.sql.heads and hot.life <= self._purged(ref)
            if not ref.holder and (ref.id, b"!") not in marks and hot.head() != stored.head() and not purged:
                found[ref.id, b"!"] = f"the head of {ref}: {hot.head()} is hot, SQL has {stored.head()}"
            for key, entry in hot.entries.items():
                cell = ref.id, b"=" + key.encode()
                if cell not in marks and stored.entries.get(key) != entry:
                    found[cell] = f"{key!r} of {ref}: {entry} is hot, SQL has {stored.entries.get(key)}"
            for key, (revision, text) in stored.entries.items():
                if key not in hot.entries and text and stored.alive and revision > max(hot.cleared, stored.cleared):
                    found[ref.id, b"=" + key.encode()] = f"{key!r} of {ref}: SQL has it, and it is not hot"
        return found

    def held(self, cell: tuple[str, bytes]) -> object:
        """What Redis has of a scope's field, as it lies there."""
        ref = next(ref for ref in SCOPES if ref.id == cell[0])
        hot = self._hot(ref)
        return (hot.head(), hot.cleared) if cell[1] == b"!" else hot.entries.get(cell[1][1:].decode())

    def only_hot(self) -> set[tuple[str, bytes]]:
        """What is clean, and not in SQL: scope id and field, whether the scope can be used or not."""
        found = set()
        for ref in SCOPES:
            hot, stored = self._hot(ref), self._stored(ref)
            found |= {(ref.id, b"!")} if hot.head() != stored.head() else set()
            found |= {
                (ref.id, b"=" + key.encode()) for key, one in hot.entries.items() if stored.entries.get(key) != one
            }
        return found - self.marks()

    def torn(self) -> list[str]:
        """Of a life that SQL knows, what began with it and SQL lacks: both come in one transaction."""
        found = []
        for ref in map(session_scope, SESSIONS):
            hot, stored, grounds = self._hot(ref), self._stored(ref), self._grounds(ref)
            dead = grounds.is_purged(hot.birth) or hot.birth <= stored.cleared
            if hot.alive and stored.alive and hot.birth == stored.birth and not dead:
                born = [
                    key for key, (revision, text) in hot.entries.items() if revision == hot.birth and not _poison(text)
                ]
                found += [f"{key!r} of {ref}" for key in born if stored.entries.get(key, (0, b""))[0] < hot.birth]
        return found

    def is_in_use(self, ref: ScopeRef) -> bool:
        """Whether a scope is ready; of a namespace also whether its session is, in the same life."""
        if not self.is_ready(ref) or not ref.holder:
            return self.is_ready(ref)
        host = session_scope(ref.session)
        session = self._hot(host)
        return self.is_ready(host) and session.alive and session.birth == self._hot(ref).birth

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
        grounds = self._grounds(ref)
        if ref.kind is ScopeKind.SESSION and not grounds.flushed and grounds.is_purged(hot.life):
            return Side()
        return _merged(hot, stored, grounds)

    def _space(self, ref: ScopeRef, birth: int) -> Values:
        """What a namespace holds in the life of its session that began at `birth`."""
        hot, stored = self._hot(ref), self._stored(ref)
        stored.cleared = max(stored.cleared, birth - 1)
        if hot.birth != birth:
            return _living(stored)
        if not self.is_ready(ref):
            hot.entries = _merged(hot, stored, self._grounds(ref)).entries
        return _living(hot)

    def _grounds(self, ref: ScopeRef) -> Grounds:
        fields = self._hash(LAYOUT.hash(ref.bucket, ref.member))
        own = bool(fields) and fields.get(b"i") == self.incarnation(ref.bucket)
        mine = {mark for scope, mark in self.marks() if scope == ref.id} if own else set()
        return Grounds(mine, own, self._purged(ref), self.sql.flushed(ref))

    def _purged(self, ref: ScopeRef) -> int:
        return self.sql.purged.get(ref.bucket, 0)

    def _hot(self, ref: ScopeRef) -> Side:
        return _hot_side(ref, self._hash(LAYOUT.hash(ref.bucket, ref.member)))

    def _stored(self, ref: ScopeRef) -> Side:
        head = self.sql.heads.get(ref.rows_id)
        rows = self.sql.rows.get(ref.id, {})
        entries = {key: (revision, b"" if gone else text.encode()) for key, (revision, text, gone) in rows.items()}
        if head is None:
            return Side(alive=ref.kind is not ScopeKind.SESSION, entries=entries)
        _, _, birth, cleared, gone, updated, told = head
        if ref.holder:
            cleared = self.sql.cleared(ref)
        return Side(cleared if gone else birth, birth, cleared, not gone, entries, updated, told)


def _poison(text: bytes) -> bool:
    """Whether the database may refuse it, for good."""
    return POISON.encode() in text


def _hot_side(ref: ScopeRef, fields: Bytes) -> Side:
    birth, cleared = (decode_revision(fields.get(name, ZERO)) for name in (b"b", b"c"))
    gone = b"x" in fields
    entries = {n[1:].decode(): (decode_revision(v[:DIGITS]), v[DIGITS:]) for n, v in fields.items() if n[:1] == b"="}
    updated = decode_revision(fields.get(b"u", ZERO)) if ref.kind is ScopeKind.SESSION else 0
    title, source = fields.get(b"t", b"").decode(), fields.get(b"q", b"").decode()
    told = Told(title, int(fields.get(b"m", 0)), int(fields.get(b"k", 0)), source)
    dropped = decode_revision(fields.get(b"p", ZERO))
    return Side(cleared if gone else birth, birth, cleared, not gone, entries, updated, told, dropped)


@dataclass(frozen=True)
class Grounds:
    """What else revalidation goes by."""

    mine: set[bytes]
    """Marks that were made in the present incarnation."""
    own: bool
    """Whether the hash is of the present incarnation: then it is whole, and takes nothing for deleted (R18)."""
    purged: int
    """The largest revision that purging ever took out of the bucket."""
    flushed: int
    """The scope revision that SQL says was flushed; 0: it does not know the scope."""

    def is_purged(self, revision: int) -> bool:
        """Whether what SQL has no row of was deleted, and purged (R14)."""
        return not self.own and revision <= self.purged and (not self.flushed or revision <= self.flushed)


def _merged(hot: Side, stored: Side, grounds: Grounds) -> Side:
    """What revalidation has to make of it: the newest life, of each key the newest entry; what is `mine` stays."""
    hot_head, stored_head = ((side.life, side.updated) for side in (hot, stored))
    head = hot if b"!" in grounds.mine or hot_head > stored_head else stored
    # An erased user has no other head than before, only a later clear.
    cleared = max(hot.cleared, stored.cleared) if hot.life == stored.life else head.cleared
    # What only SQL has, and is no news to the hash, was deleted.
    rows = {key: entry for key, entry in stored.entries.items() if key in hot.entries or entry[0] > hot.dropped}
    side = Side(head.life, head.birth, cleared, head.alive, rows, head.updated, head.told)
    for key, entry in hot.entries.items():
        newer = b"=" + key.encode() in grounds.mine or entry[0] > stored.entries.get(key, (0, b""))[0]
        if newer and (key in stored.entries or not grounds.is_purged(entry[0])):
            side.entries[key] = entry
    return side


def _living(side: Side) -> Values:
    return {key: decode_value(json_of(text)) for key, text in _texts(side).items()}


def _dates(side: Side) -> dict[str, int]:
    """The times that were given with keys."""
    dates = {key: date_of(text) for key, text in _texts(side).items()}
    return {key: at for key, at in dates.items() if at is not None}


def _texts(side: Side) -> dict[str, bytes]:
    return {
        key: text for key, (revision, text) in side.entries.items() if text and revision > side.cleared and side.alive
    }
