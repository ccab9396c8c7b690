"""The hot tier in memory: the same calls and answers as the one in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessioncache.hot.fields import Event, Field, fields_of, key_field
from sessioncache.hot.layout import Layout, Place
from sessioncache.hot.messages import (
    Content,
    Deleted,
    FlushState,
    Gathered,
    Part,
    Refused,
    Stamp,
    Touch,
    Wanted,
    Written,
    WrittenPart,
)
from sessioncache.hot.signals import Gone, Taken
from sessioncache.hot.subscriptions import MOST_TOLD, Announcement
from sessioncache.hot.tier import HotTier, Plan
from sessioncache.hot.unflushed import NAMES, Unflushed
from sessioncache.hot.write import Write
from sessioncache.primitives.entries import Head, StoredScope
from sessioncache.primitives.revisions import ZERO, decode_revision, encode_revision
from sessioncache.primitives.scopes import ScopeKind
from sessioncache.testing.staging import DURABLE, INCARNATION, Staged, next_revision, stage, written
from sessioncache.testing.store import Cell, MemoryStore

_OWNERS = "aubow"
"""What the ids in a session's `parents` belong to: app, user, bare session id, org, user name in the org."""
_ID_DIGITS = 32
_LISTED = (Field.BIRTH, Field.UPDATED, Field.TITLE, Field.MESSAGES, Field.TOKENS, Field.FORKED_FROM)
_COUNTER_END = 10**15


class MemoryHot(HotTier):
    """Reads and writes scopes in this process.  Nothing is ever cold, and everything counts as flushed."""

    def __init__(self, store: MemoryStore, layout: Layout, *, temp_ttl: float) -> None:
        self.layout = layout
        self._store = store
        self._temp_us = int(temp_ttl * 1_000_000)
        self.idle_ms = self._temp_ms = 0  # nothing is evicted

    async def write(self, write: Write) -> Written | Refused:
        """Write all of it in one step, or nothing.  Gone."""
        with self._store.lock:
            cells = self._cells(write.parts)
            refused = self._refusal(cells, write.lease)
            staged = refused or stage(cells)
            if isinstance(staged, Refused):
                return staged
            if not any(one.changed for one in staged):
                return written(staged, _own(cells).values_revision)
            revision = next_revision(self._store.now(), [cell for _, cell in cells])
            self._apply(staged, revision)
            return written(staged, revision)

    async def touch(self, part: Part, touch: Touch, lease: bytes = b"") -> tuple[Written | Refused, dict[bytes, bytes]]:
        """Count and name what is in use; the head fields that lists show, empty where it was refused.  Gone."""
        with self._store.lock:
            session = self._store.session(part.place, part.birth)
            refused = self._refusal([(part, session)], lease)
            if refused:
                return refused, {}
            counters = _counted(session.head, touch)
            if counters is None:
                return Refused("limit", [(0, -1)], "counter"), {}
            revision = next_revision(self._store.now(), [session])
            session.head |= counters | dict.fromkeys((Field.REVISION, Field.HEAD_REVISION, Field.UPDATED), revision)
            if touch.rename or (touch.title and not session.head.get(Field.TITLE)):
                session.head[Field.TITLE] = touch.title.encode()
            told = {name: session.head.get(name, b"") for name in _LISTED}
            return Written(revision, [WrittenPart(INCARNATION, DURABLE, False, [])]), told

    async def use(self, place: Place, birth: bytes, interval: int) -> int:
        """Record that a session is in use, unless that was recorded less than `interval` µs ago; the time in µs.
        Gone."""
        with self._store.lock:
            session, now = self._store.session(place, birth), self._store.now()
            if now - _last_use(session) >= interval:
                session.head |= {Field.REVISION: next_revision(now, [session]), Field.USED: encode_revision(now)}
            return now

    async def create(
        self,
        parts: Sequence[Part],
        head: Head,
        *,
        token: bytes,
        known: bytes,
        whole: Sequence[Place] = (),
        pieces: Gathered | None = None,
    ) -> Written | Refused:
        """Create the session of the first part.  Taken."""
        place = parts[0].place
        with self._store.lock:
            if self._store.is_erased(user_of(place)):
                return Refused("erased", [])
            fresh = vacant(self._store, place)
            staged = stage(
                [
                    (parts[0], fresh),
                    *((part, self._store.beside(fresh, part.place, temp=part.temp)) for part in parts[1:]),
                ]
            )
            if isinstance(staged, Refused):
                return staged
            revision = next_revision(self._store.now(), [one.cell for one in staged])
            fresh.head = birth_fields(head, revision)
            self._apply(staged, revision, created=True)
            done = written(staged, revision, created=True)
            contents = [_content(one.cell, None) if one.part.place in whole else None for one in staged]
            pairs = zip(done.parts, contents, strict=True)
            return Written(revision, [part._replace(content=content) for part, content in pairs])

    async def delete(self, place: Place, birth: bytes = b"", *, unused_since: int | None = None) -> Deleted:
        """Delete a session.  Gone where there never was one, or `birth` is another life's."""
        with self._store.lock:
            cell = self._store.scopes.get(place.hash)
            if cell is None or (birth and cell.birth != birth):
                raise Gone
            if unused_since is not None and _last_use(cell) > unused_since:
                return Deleted(existed=False, written=None)
            existed, living = bool(cell.birth), len(cell.entries)
            spaces = {name: len(space.entries) for name, space in cell.spaces.items()}
            if existed:
                cell.empty(next_revision(self._store.now(), [cell]))
                cell.head[Field.DELETED] = cell.revision
                self._store.announce(place, Announcement(Event.ENDED, cell.revision, ZERO, (), INCARNATION))
            done = Written(cell.revision, [WrittenPart(INCARNATION, DURABLE, existed, [])])
            return Deleted(existed, done, living, spaces)

    async def erase(self, place: Place, seconds: float, token: bytes = b"", stored: StoredScope | None = None) -> Stamp:
        """Erase a user's scope, and refuse writes of the user for some seconds."""
        with self._store.lock:
            cell = self._store.first(place, b"")
            living = len(cell.entries)
            cell.empty(next_revision(self._store.now(), [cell]))
            self._store.scopes[place.hash] = cell
            self._store.announce(place, Announcement(b"?", cell.revision, ZERO, (), INCARNATION))
            self._store.erased[place.ref.id.encode()] = self._store.now() + int(seconds * 1_000_000)
            return Stamp(cell.revision, living, INCARNATION)

    async def read(self, wanted: Sequence[Wanted]) -> list[Content]:
        """Read scopes in one step.  Gone."""
        with self._store.lock:
            first = self._store.first(wanted[0].place, wanted[0].birth)
            cells = [first, *(self._store.beside(first, one.place, temp=one.temp) for one in wanted[1:])]
            for one, cell in zip(wanted, cells, strict=True):
                if one.temp:
                    cell.expires = self._store.now() + self._temp_us
            return [_content(cell, one.keys) for one, cell in zip(wanted, cells, strict=True)]

    async def look(self, plan: Plan, held: Sequence[bytes]) -> list[Content | None]:
        """Read scopes in one step; None for one that is as it is held.  Gone."""
        contents = await self.read(plan.wanted)
        pairs = zip(contents, held or [b""] * len(contents), strict=True)
        return [None if of and of == one.version else one for one, of in pairs]

    async def read_whole(self, plan: Plan) -> list[Content]:
        """Read scopes in one step.  Gone."""
        return await self.read(plan.wanted)

    async def flush_state(self, places: Sequence[Place]) -> list[FlushState]:
        """How far scopes have been flushed: all of it."""
        return [FlushState(INCARNATION, INCARNATION, DURABLE, marks=0) for _ in places]

    async def unflushed(self, by: str, scope_id: str, buckets: Iterable[int]) -> list[Unflushed]:
        """All sessions (tombstones too) of an owner: there is no SQL to ask."""
        start = _OWNERS.index(by) * _ID_DIGITS
        owned = slice(start, start + _ID_DIGITS)
        with self._store.lock:
            return [
                Unflushed(cell.place.ref.id, [None, *map(cell.head.get, NAMES)])
                for cell in self._store.sessions()
                if cell.place.parents[owned] == scope_id.encode() and cell.place == self.layout.place(cell.place.ref)
            ]

    def _cells(self, parts: Sequence[Part]) -> list[tuple[Part, Cell]]:
        """What the parts lie in.  Gone."""
        first = self._store.first(parts[0].place, parts[0].birth)
        beside = [(part, self._store.beside(first, part.place, temp=part.temp)) for part in parts[1:]]
        return [(parts[0], first), *beside]

    def _refusal(self, cells: list[tuple[Part, Cell]], lease: bytes) -> Refused | None:
        """Why nothing may be written, whatever it is."""
        if any(part.if_revision not in (b"", cell.values_revision) for part, cell in cells):
            return Refused("stale", [])
        if any(part.place.ref.kind is ScopeKind.USER and self._is_erased(part.place) for part, _ in cells):
            return Refused("erased", [])
        if lease and not self._store.is_held(cells[0][1], lease):
            return Refused("lease", [])
        return None

    def _is_erased(self, user: Place) -> bool:
        return self._store.is_erased(user.ref.id.encode())

    def _announce(self, one: Staged, host: Cell, revision: bytes) -> None:
        keys = tuple(one.texts) if len(one.texts) <= MOST_TOLD else None
        if one.part.temp:
            self._store.announce(host.place, Announcement(Event.TEMP_WRITTEN, revision, ZERO, keys, INCARNATION))
        else:
            self._store.announce(
                one.part.place, Announcement(Event.WRITTEN, revision, one.cell.values_revision, keys, INCARNATION)
            )

    def _apply(self, staged: list[Staged], revision: bytes, *, created: bool = False) -> None:
        """Write what was staged; a session's head moves with its own keys and with its namespaces'."""
        host = staged[0].cell
        for one in staged:
            if not one.changed and not (created and one.cell is host):
                continue
            self._announce(one, host, revision)
            one.apply(revision)
            if one.part.temp:
                host.head[Field.TEMP_REVISION] = revision
                one.cell.expires = self._store.now() + self._temp_us
            elif one.part.place.ref.kind in (ScopeKind.SESSION, ScopeKind.NAMESPACE):
                host.head |= dict.fromkeys((Field.REVISION, Field.HEAD_REVISION, Field.UPDATED), revision)
            self._store.keep(host, one.cell, temp=one.part.temp)


def _last_use(session: Cell) -> int:
    """When a session was last in use, as far as that was recorded."""
    return max(decode_revision(session.head.get(name, ZERO)) for name in (Field.UPDATED, Field.USED))


def _own(cells: list[tuple[Part, Cell]]) -> Cell:
    """The scope whose revision a write answers: the namespace, if it is one's."""
    return next((cell for part, cell in cells if part.place.ref.kind is ScopeKind.NAMESPACE), cells[0][1])


def _counted(head: dict[bytes, bytes], touch: Touch) -> dict[bytes, bytes] | None:
    """The counters after a touch; None where one would be too large."""
    messages, tokens = int(head.get(Field.MESSAGES, 0)) + touch.messages, int(head.get(Field.TOKENS, 0)) + touch.tokens
    if max(messages, tokens) >= _COUNTER_END:
        return None
    return {Field.MESSAGES: b"%d" % messages, Field.TOKENS: b"%d" % tokens}


def _content(cell: Cell, keys: Sequence[str] | None) -> Content:
    """What of a cell was asked for."""
    chosen = cell.entries if keys is None else {key: cell.entries[key] for key in keys if key in cell.entries}
    return Content(INCARNATION, cell.head | {key_field(key): value for key, value in chosen.items()})


def app_of(session: Place) -> bytes:
    """The id of the scope of a session's app."""
    return session.parents[:_ID_DIGITS]


def user_of(session: Place) -> bytes:
    """The id of the scope of a session's user."""
    return session.parents[_ID_DIGITS : 2 * _ID_DIGITS]


def vacant(store: MemoryStore, place: Place) -> Cell:
    """An empty cell for a new session, of which only the revision of an earlier life counts.  Taken."""
    if store.living(place):
        raise Taken
    former = store.scopes.get(place.hash)
    return Cell(place, {Field.REVISION: former.revision} if former else {})


def birth_fields(head: Head, revision: bytes) -> dict[bytes, bytes]:
    """The head of a session that is born at `revision`."""
    flat = fields_of(head, ScopeKind.SESSION)
    before = encode_revision(decode_revision(revision) - 1)
    born = dict.fromkeys(
        (Field.REVISION, Field.BIRTH, Field.VALUES_REVISION, Field.HEAD_REVISION, Field.UPDATED), revision
    )
    return dict(zip(flat[::2], flat[1::2], strict=True)) | born | {Field.CLEARED: before}
