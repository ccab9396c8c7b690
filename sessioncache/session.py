"""Sessions: the handle through which an agent reads and writes the state of one conversation.

A handle belongs to one *life* of its session, told apart by its *birth*, the revision at which it was created (R5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from datetime import datetime
from typing import Any, Self, TypeVar

from sessioncache.coordination.places import SessionPlaces
from sessioncache.coordination.tiers import Tiers
from sessioncache.coordination.usage import InUse
from sessioncache.current import bound
from sessioncache.errors import OutcomeUnknownError, SessionCacheError, SessionNotFoundError
from sessioncache.handle.base import Handle
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.hot.fields import Field, head_of
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Content, Part, Touch, Wanted, Written
from sessioncache.hot.signals import Gone
from sessioncache.hot.write import Write
from sessioncache.lease import Lease
from sessioncache.namespace import Namespace
from sessioncache.operations.export import export_session
from sessioncache.operations.fork import Forker
from sessioncache.operations.touch import check_title, counting, touch
from sessioncache.primitives.names import APP_PREFIX, TEMP_PREFIX, USER_PREFIX, Key, KeyScope, split_key
from sessioncache.primitives.revisions import ZERO
from sessioncache.primitives.session_info import Identity, SessionInfo, info_of
from sessioncache.primitives.values import readable, tell_damaged
from sessioncache.records import Record, record_of, upsert_of

T = TypeVar("T")

_PREFIX = {KeyScope.SESSION: "", KeyScope.USER: USER_PREFIX, KeyScope.APP: APP_PREFIX, KeyScope.TEMP: TEMP_PREFIX}


_SHARED = (KeyScope.USER, KeyScope.APP)
_MOVING = (Field.REVISION, Field.VALUES_REVISION, Field.UPDATED, Field.TITLE, Field.MESSAGES, Field.TOKENS)
"""Head fields that change within a life."""


class Session(Handle):
    """One life of one session: its keys, merged with those of its user and app by prefix.

    Every call raises SessionNotFoundError once the session was deleted, even if one of the same id was created since.
    """

    _in_use: InUse

    def __init__(
        self,
        tiers: Tiers,
        open_unflushed: Callable[[], UnflushedWrites],
        places: SessionPlaces,
        head: dict[bytes, bytes],
    ) -> None:
        super().__init__(tiers, open_unflushed)
        self._by_scope = places.by_scope
        self._head = head
        self._in_use = InUse(places.session, head[Field.BIRTH])
        self._in_use.seen(head)

    @classmethod
    def read(
        cls,
        tiers: Tiers,
        open_unflushed: Callable[[], UnflushedWrites],
        places: SessionPlaces,
        contents: Mapping[KeyScope, Content],
    ) -> Session:
        """The handle of a session that was just read."""
        session = cls(tiers, open_unflushed, places, contents[KeyScope.SESSION].head)
        for scope, content in contents.items():
            session._take(0, scope, content)
        return session

    @classmethod
    def created(
        cls,
        tiers: Tiers,
        open_unflushed: Callable[[], UnflushedWrites],
        places: SessionPlaces,
        parts: Mapping[KeyScope, Part],
        written: Written,
        title: str,
    ) -> Session:
        """The handle of a session that was just created, with the shared keys that were read right after it."""
        digits = written.birth or written.revision
        head = {Field.BIRTH: digits, Field.VALUES_REVISION: digits, Field.UPDATED: digits, Field.TITLE: title.encode()}
        head |= {name: text.encode() for name, text in _identity(places.session).items()}
        session = cls(tiers, open_unflushed, places, head)
        session._known.born(KeyScope.SESSION, digits)
        if written.birth:  # shared scopes have another revision than private ones
            private, shared = _halves(parts, written)
            session._note(*private, life=True)
            session._note(*shared)
        else:
            session._note(Write(list(parts.values()), tuple(parts)), written, life=True)
        for scope, done in zip(parts, written.parts, strict=True):
            if done.content is not None:
                session._take(0, scope, done.content)
        return session

    # ---- what a session says of itself

    @property
    def info(self) -> SessionInfo:
        """What lists show of the session, as last read by this handle plus its own writes."""
        return info_of(head_of(self._head.copy()))  # a copy: another thread may be changing it

    @property
    def id(self) -> str:
        """The session id."""
        return self._by_scope[KeyScope.SESSION].ref.session

    @property
    def org(self) -> str:
        """The tenant."""
        return self._by_scope[KeyScope.SESSION].ref.org

    @property
    def app(self) -> str:
        """The application."""
        return self._by_scope[KeyScope.SESSION].ref.app

    @property
    def user(self) -> str:
        """The end user."""
        return self._by_scope[KeyScope.SESSION].ref.user

    @property
    def title(self) -> str:
        """The title; empty if none was given."""
        return self.info.title

    @property
    def created_at(self) -> datetime:
        """When this life began (aware, UTC)."""
        return self.info.created_at

    @property
    def updated_at(self) -> datetime:
        """When the session's own keys last changed (aware, UTC)."""
        return self.info.updated_at

    @property
    def message_count(self) -> int:
        """Messages counted so far."""
        return self.info.message_count

    @property
    def token_total(self) -> int:
        """Tokens counted so far."""
        return self.info.token_total

    @property
    def forked_from(self) -> str | None:
        """The id of the session that this one was forked from."""
        return self.info.forked_from

    @property
    def identity(self) -> Identity:
        """Org, app, user and session id: the key under which memory layers and the like keep what belongs to the
        session."""
        return Identity(self.org, self.app, self.user, self.id)

    def bind(self) -> AbstractContextManager[Self]:
        """``with session.bind():`` makes it what `current_session()` returns in the block, and restores the previous.

        For this task or thread, and for tasks that are made within the block.
        """
        return bound(self)

    def __repr__(self) -> str:
        return f"<Session {self.id!r} of {self.user!r}>"

    # ---- its life

    async def touch(self, *, messages: int = 0, tokens: int = 0, first_message: str | None = None) -> SessionInfo:
        """Add to the counters, and record that the session is in use; changes no value.

        `first_message` gives a session without a title one that is derived from it (see `derive_title`).

        Raises:
            LimitExceededError: More than 10¹² are added at once, or a counter would have more than 15 digits.
            InvalidValueError: A count is not a whole number from 0, or `first_message` is not a text.
        """
        return await self._touch(counting(messages, tokens, first_message))

    async def rename(self, title: str) -> SessionInfo:
        """Give the session another title, of at most 1,024 bytes of UTF-8.

        Raises:
            LimitExceededError: The title is longer.
        """
        return await self._touch(Touch(title=check_title(title), rename=True))

    async def _touch(self, change: Touch) -> SessionInfo:
        part = Part(self._by_scope[KeyScope.SESSION], birth=self._birth)
        written, head = await self._of_this_life(touch(self._tiers, part, change, self._lease))
        if head.get(Field.UPDATED, ZERO) >= self._head.get(Field.UPDATED, ZERO):  # else a later one came first
            self._head.update({name: head[name] for name in _MOVING if name in head})  # R5: never the birth
        self._in_use.seen(head)
        if self._unflushed is None:
            self._unflushed = self._open_unflushed()
        self._unflushed.note_head(part.place, written)
        return self.info

    async def fork(self, *, new_id: str | None = None) -> Session:
        """A new session of the same user with this one's private keys and namespaces; `temp:` keys stay behind.

        It has the title of this one and counters of 0; from then on the two are independent.

        Raises:
            SessionExistsError: A session of this user has the id `new_id`; nothing was changed.
            LimitExceededError: This session has more than 500 namespaces.
        """
        place = self._by_scope[KeyScope.SESSION]
        return await self._of_this_life(
            fork_session(self._tiers, self._open_unflushed, place, self._birth, new_id, self._lease)
        )

    async def records(self) -> list[Record]:
        """All private keys as records, as the hot tier has them now, sorted by key.

        Keys of namespaces, shared keys and `temp:` keys are not among them.  Damaged values are left out, with a line
        in the log.
        """
        own, entries = self._by_scope[KeyScope.SESSION].ref, await self._read_own()
        values, damaged = readable(entries, self.id)
        tell_damaged(self.id, damaged)
        return [record_of(own, key, value, entries[key]) for key, value in values.items()]

    async def upsert_record(self, record: Record) -> bool:
        """Set a private key by a record, unless the stored record has a later time; whether it was set.

        The record's `updated_at` is compared with the stored record's in the step that writes; a record without one
        counts as the latest.  The time is aware, has microseconds, and lies between 1970 and 2540.

        Raises:
            InvalidNameError: The key has a prefix.
            InvalidValueError: The value is not exactly a JSON value, or the time cannot be used.
        """
        _, written = await self._write({KeyScope.SESSION: [upsert_of(record)]})
        return written.parts[0].results[0] != 0

    async def clear(self) -> int:
        """Delete all private keys in one step; how many there were.  Namespaces, shared and `temp:` keys stay."""
        return await self._clear()

    async def export(self) -> dict[str, Any]:
        """All that is private to the session, as plain JSON; `temp:` keys are left out.

        The dict is that of `SessionCache.export_session`.
        """
        place = self._by_scope[KeyScope.SESSION]
        return await self._of_this_life(export_session(self._tiers, place, self._birth))

    def namespace(self, name: str) -> Namespace:
        """A named set of keys of the session, beside its private keys."""
        place = self._by_scope[KeyScope.SESSION]
        found = Namespace(self._tiers, self._open_unflushed, place, self._birth, name, self._lease)
        found._in_use = self._in_use
        return found

    def lease(self, ttl: float = 30, wait: float = 0) -> Lease:
        """One runner at a time: ``async with session.lease() as held``; writes through `held` are fenced.

        `held` is read anew once the lease is taken.  The lease renews itself.  `ttl` is the number of seconds after
        which a runner that does not renew has lost it: what it still writes is refused with StaleLeaseError.  Writes
        through other handles are not refused.

        Raises:
            ConfigurationError: `ttl` or `wait` is no usable number of seconds.
            LeaseUnavailableError: Another runner holds the lease, and does not give it back within `wait` seconds.
        """
        return Lease(self._tiers, self, self._by_scope[KeyScope.SESSION], self._birth, ttl, wait)

    def under_lease(self, token: bytes) -> Session:
        """The same session by a handle of its own, whose writes are refused once `token` lost the lease."""
        held = copy(self)
        held._head, held._known = dict(self._head), self._known.copy()
        held._unflushed, held._lease = None, token
        return held

    # ---- what Handle asks

    def _split(self, key: object) -> Key:
        return split_key(key)

    def _full(self, scope: KeyScope, name: str) -> str:
        return _PREFIX[scope] + name

    def _places(self) -> Mapping[KeyScope, Place]:
        return self._by_scope

    @property
    def _birth(self) -> bytes:
        return self._head[Field.BIRTH]

    @property
    def of_session(self) -> str:
        """Its id."""
        return self.id

    def gone(self) -> SessionNotFoundError:
        """What every call raises once this life of the session is over."""
        return not_found(self.id)

    async def _of_this_life(self, work: Awaitable[T]) -> T:
        try:
            outcome = await work
        except Gone:
            raise self.gone() from None
        await self._in_use.note(self._tiers)
        return outcome

    def _noticed(self, content: Content) -> None:
        told = content.fields
        self._head.update({name: told[name] for name in _MOVING if name in told})
        self._in_use.seen(told)

    def _changed(self, revision: bytes) -> None:
        self._head[Field.UPDATED] = max(revision, self._head.get(Field.UPDATED, ZERO))
        if self._tiers.usage.needed:
            self._in_use.seen(self._head)


def _halves(parts: Mapping[KeyScope, Part], written: Written) -> list[tuple[Write, Written]]:
    """A create as two writes: of the private keys, at the birth, and of the shared keys."""
    halves = []
    for scopes, revision in (((KeyScope.SESSION, KeyScope.TEMP), written.birth), (_SHARED, written.revision)):
        own = {scope: part for scope, part in parts.items() if scope in scopes}
        done = [done for scope, done in zip(parts, written.parts, strict=True) if scope in scopes]
        halves.append((Write(list(own.values()), tuple(own)), Written(revision, done)))
    return halves


async def open_session(
    tiers: Tiers, open_unflushed: Callable[[], UnflushedWrites], places: SessionPlaces, birth: bytes = b""
) -> Session:
    """The handle of a session, in any life if `birth` is empty, with its merged state.  Gone."""
    wanted = [
        Wanted(place, birth=birth if scope is KeyScope.SESSION else b"", temp=scope is KeyScope.TEMP)
        for scope, place in places.by_scope.items()
    ]
    plan = tiers.hot.plan(wanted)
    contents = await tiers.perform(lambda: tiers.hot.read_whole(plan))
    session = Session.read(tiers, open_unflushed, places, dict(zip(places.by_scope, contents, strict=True)))
    await session._in_use.note(tiers)
    return session


async def fork_session(
    tiers: Tiers,
    open_unflushed: Callable[[], UnflushedWrites],
    parent: Place,
    birth: bytes,
    new_id: str | None,
    lease: bytes = b"",
) -> Session:
    """A fork of the session at `parent`, in any life if `birth` is empty; `lease`: see Handle.

    Gone, SessionExistsError, StaleLeaseError; OutcomeUnknownError also where the fork was made and cannot be read.
    """
    forker, writes = Forker(tiers, parent, birth, new_id, lease), open_unflushed()
    written, ref = await forker.run(), forker.child.ref
    places = SessionPlaces.of(tiers, ref.org, ref.app, ref.user, ref.session)
    try:
        await forker.note(writes, written)
        child = await open_session(tiers, open_unflushed, places, written.revision)
    except Gone:
        raise not_found(ref.session) from None
    except SessionCacheError as error:
        raise OutcomeUnknownError(f"the session was forked into {ref.session!r}, which cannot be read now") from error
    child._unflushed = writes
    return child


def _identity(place: Place) -> dict[bytes, str]:
    return {
        Field.ORG: place.ref.org,
        Field.APP: place.ref.app,
        Field.USER: place.ref.user,
        Field.SESSION: place.ref.session,
    }


def not_found(session_id: str) -> SessionNotFoundError:
    """The same for another user's session as for none (R20)."""
    return SessionNotFoundError(f"there is no session {session_id!r} of this user", session_id=session_id)
