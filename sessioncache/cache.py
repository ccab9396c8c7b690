"""The cache: the way in to the sessions of one app, and the connections that all of them share.

A cache of one process works on state that all processes of the installation share: it keeps no copies that could be
stale, only which of its own writes are not known to be durable.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sessioncache.batch.batch import Batch
from sessioncache.coordination.connecting import Connecting, Resources
from sessioncache.coordination.places import SessionPlaces
from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import DurableTierUnavailableError, SessionExistsError, SessionNotFoundError
from sessioncache.handle.flush_wait import flush, prune
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.hot.client import HotClient
from sessioncache.hot.fields import Field, head_of
from sessioncache.hot.messages import Part, Touch
from sessioncache.hot.signals import Gone
from sessioncache.operations.create import Creation
from sessioncache.operations.delete import Deletion
from sessioncache.operations.erase_user import Erasure, ErasureReport
from sessioncache.operations.export import FORMAT, export_scope, export_session
from sessioncache.operations.list import Listing, find
from sessioncache.operations.resume import user_of
from sessioncache.operations.retention import note
from sessioncache.operations.touch import check_title, counting, touch
from sessioncache.primitives.cursors import Order, Owner, check_order
from sessioncache.primitives.deadline import check_seconds, within
from sessioncache.primitives.names import check_name, new_session_id
from sessioncache.primitives.retention_record import Retention
from sessioncache.primitives.scopes import app_ref, user_ref
from sessioncache.primitives.session_info import SessionInfo, SessionPage, info_of
from sessioncache.primitives.values import Json, check_flag, check_mapping
from sessioncache.scope import Scope
from sessioncache.session import Session, fork_session, not_found, open_session
from sessioncache.settings import CacheSettings

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from sqlalchemy.ext.asyncio import AsyncEngine

_MANY_LEDGERS = 1_024
"""Handles with unflushed writes above which the cache checks which of these are durable by now."""
_NOTE_AGAIN = 30.0
"""Seconds after which a retention that could not be recorded is tried again."""


class SessionCache:
    """Session state of one app (and org), shared by all processes that use the same Redis and database.

    Open it with `connect`, or over a Redis client and an engine of your own, which stay yours to close.

    Every call may raise these errors, besides those that it lists itself.

    Raises:
        InvalidNameError: A name, a key or another argument cannot be used; nothing was done.
        HotTierUnavailableError: Redis cannot be reached; the call had no effect.
        DurableTierUnavailableError: The scope is not hot, and SQL cannot be reached.
        DamagedValueError: What is stored cannot be read.
        InvalidValueError: A value that would be written is not exactly a JSON value; nothing was written.
        LimitExceededError: A write is larger than one of the documented limits; nothing was written.
        OutcomeUnknownError: The connection failed after a write was sent: it may or may not have been applied.
        MemoryFullError: Redis is out of memory and refuses the write.
        BackPressureError: Too much waits to be flushed; nothing was written.
    """

    def __init__(self, redis: Redis, engine: AsyncEngine, *, app: str, org: str = "", **settings: Any) -> None:
        """A cache over the caller's `redis.asyncio.Redis` and `AsyncEngine`; nothing is sent before the first call.

        Settings are those of `CacheSettings`.

        Raises:
            ConfigurationError: A setting is unknown or has no usable value, or the client cannot be used.
            InvalidNameError: `app` or `org` cannot be used as a name.
        """
        from sessioncache.durable.tier import DurableTier

        tiers = Tiers(HotClient(redis, owned=False), DurableTier(engine), CacheSettings.of(settings))
        self._set_up(tiers, app, org, None)

    def _set_up(self, tiers: Tiers, app: str, org: str, resources: Resources | None) -> None:
        self.app = check_name("app", app, empty=True)
        self.org = check_name("org", org, empty=True)
        self._tiers = tiers
        self._all_unflushed: set[UnflushedWrites] = set()
        self._many = _MANY_LEDGERS
        self._resources = resources
        seconds = tiers.settings.retention
        self._note_from = 0.0
        self._to_note = None if seconds is None else Retention(self.org, self.app, float(seconds))
        if seconds is not None:
            tiers.usage.keep(self.org, self.app, float(seconds))

    @classmethod
    def _over(cls, tiers: Tiers, app: str, org: str, resources: Resources | None = None) -> Self:
        cache = cls.__new__(cls)
        cache._set_up(tiers, app, org, resources)
        return cache

    @classmethod
    def connect(
        cls,
        redis_url: str | None = None,
        database_url: str | None = None,
        *,
        app: str,
        org: str = "",
        data_dir: str | None = None,
        **settings: Any,
    ) -> Connecting[SessionCache]:
        """Open a cache: ``async with SessionCache.connect(…) as cache`` or ``cache = await SessionCache.connect(…)``.

        Without URLs: SESSIONCACHE_REDIS_URL and SESSIONCACHE_DATABASE_URL, else a Valkey server and a SQLite file in
        `data_dir`, shared by all processes that name the same folder.  Settings are those of `CacheSettings`.

        Raises:
            ConfigurationError: A setting or URL cannot be used, or the tiers, or the settings of this installation, do
                not belong together.
            InvalidNameError: `app` or `org` cannot be used as a name.
            SchemaVersionError: The schema of the database is not the one that this version needs.
            HotTierUnavailableError: Redis cannot be reached.
            DurableTierUnavailableError: SQL cannot be reached, and Redis does not know this installation yet.
        """
        check_name("app", app, empty=True)
        check_name("org", org, empty=True)

        def over(tiers: Tiers, resources: Resources) -> SessionCache:
            return cls._over(tiers, app, org, resources)

        return Connecting(over, redis_url, database_url, data_dir, CacheSettings.of(settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what `connect` opened, and the connections made over the caller's client.

        Unflushed writes stay in Redis, and a worker flushes them.
        """
        if self._resources is not None:
            await self._resources.aclose()
        else:
            await self._tiers.aclose()

    def bound_to(self, *, org: str | None = None, app: str | None = None) -> SessionCache:
        """A cache of another tenant or app over the same connections, which this object closes."""
        org, app = self.org if org is None else org, self.app if app is None else app
        return _Bound._over(self._tiers, app, org)

    # ---- sessions

    async def create(
        self,
        user: str,
        *,
        session_id: str | None = None,
        state: Mapping[str, Json] | None = None,
        title: str = "",
    ) -> Session:
        """Create a session with its initial state (keys may bear prefixes), in one atomic step.

        It may have as many private keys as a session may have at all: a large state is stored in pieces first, which
        nobody sees.  Without `session_id` an id is generated.

        Raises:
            SessionExistsError: A session of this user has the id; nothing was changed.
            OutcomeUnknownError: It may have been created, or was created and cannot be read now.
            StaleSessionError: The user was erased less than a minute ago; nothing was written.
        """
        generated = session_id is None
        places = self._places(user, new_session_id() if session_id is None else session_id)
        given = {} if state is None else check_mapping("state", state)
        creation = Creation(self._tiers, places, title, given, generated=generated)
        open_unflushed = await self._unflushed_source()
        return await creation.run(
            lambda parts, written: Session.created(self._tiers, open_unflushed, places, parts, written, title)
        )

    async def get(self, user: str, session_id: str) -> Session:
        """A session with its merged state.

        Raises:
            SessionNotFoundError: This user has no session of the id.
        """
        places = self._places(user, session_id)
        try:
            return await open_session(self._tiers, await self._unflushed_source(), places)
        except Gone:
            raise not_found(session_id) from None

    async def get_or_create(
        self, user: str, session_id: str, *, state: Mapping[str, Json] | None = None, title: str = ""
    ) -> tuple[Session, bool]:
        """A session, and whether it was created by this call: with this state, if there was none; one that exists is
        not reset.

        Raises:
            StaleSessionError: The user was erased less than a minute ago; nothing was written.
        """
        if state is not None:
            check_mapping("state", state)
        check_title(title)
        while True:
            try:
                return await self.get(user, session_id), False
            except SessionNotFoundError:
                pass
            try:
                return await self.create(user, session_id=session_id, state=state, title=title), True
            except SessionExistsError:
                continue

    @asynccontextmanager
    async def resume(self, session_id: str, *, user: str | None = None) -> AsyncIterator[Session]:
        """``async with cache.resume(id) as session:`` a session by its id alone, ambient within the block.

        Sessions that are not hot, or not flushed yet, are found as well.

        Raises:
            SessionNotFoundError: No session of this app has the id, or none of this user if `user` is given.
            AmbiguousSessionError: Several users of this app have a session of the id, and `user` is not given.
        """
        if user is None:
            check_name("a session id", session_id)
            user = await user_of(self._tiers, self.org, self.app, session_id)
        session = await self.get(user, session_id)
        with session.bind():
            yield session

    async def delete(self, user: str, session_id: str) -> bool:
        """Delete a session with its private and `temp:` keys, at once for every process; whether it existed."""
        place = self._places(user, session_id).session
        try:
            deleted = await self._tiers.perform(Deletion(self._tiers, place).attempt)
        except Gone:
            return False
        if deleted.existed and deleted.written is not None:
            (await self._unflushed_source())().note_delete(place, deleted.written)
        return deleted.existed

    async def fork(self, user: str, session_id: str, *, new_id: str | None = None) -> Session:
        """A new session of the same user with another one's private keys and namespaces, unflushed writes included.

        `temp:` keys stay behind; the title is copied, the counters are 0, and `forked_from` is the id of the other
        session.  From then on the two are independent.

        Raises:
            SessionNotFoundError: This user has no session of the id.
            SessionExistsError: A session of this user has the id `new_id`; nothing was changed.
            LimitExceededError: The session has more than 500 namespaces.
            StaleSessionError: The user was erased less than a minute ago; nothing was written.
        """
        place = self._places(user, session_id).session
        try:
            return await fork_session(self._tiers, await self._unflushed_source(), place, b"", new_id)
        except Gone:
            raise not_found(session_id) from None

    async def touch(
        self, user: str, session_id: str, *, messages: int = 0, tokens: int = 0, first_message: str | None = None
    ) -> SessionInfo:
        """Add to a session's counters, and record that it is in use; changes no value.

        `first_message` gives a session without a title one that is derived from it (see `derive_title`).

        Raises:
            SessionNotFoundError: This user has no session of the id.
            LimitExceededError: More than 10¹² are added at once, or a counter would have more than 15 digits.
            InvalidValueError: A count is not a whole number from 0, or `first_message` is not a text.
        """
        return await self._touch(user, session_id, counting(messages, tokens, first_message))

    async def rename(self, user: str, session_id: str, title: str) -> SessionInfo:
        """Give a session another title, of at most 1,024 bytes of UTF-8.

        Raises:
            SessionNotFoundError: This user has no session of the id.
            LimitExceededError: The title is longer.
        """
        return await self._touch(user, session_id, Touch(title=check_title(title), rename=True))

    async def _touch(self, user: str, session_id: str, change: Touch) -> SessionInfo:
        place = self._places(user, session_id).session
        try:
            written, head = await touch(self._tiers, Part(place), change)
        except Gone:
            raise not_found(session_id) from None
        (await self._unflushed_source())().note_head(place, written)
        names = (Field.ORG, self.org), (Field.APP, self.app), (Field.USER, user), (Field.SESSION, session_id)
        return info_of(head_of({**head, **{name: text.encode() for name, text in names}}))

    # ---- exporting, and erasing

    async def export_session(self, user: str, session_id: str) -> dict[str, Any]:
        """All that is private to a session, as plain JSON; `temp:` keys are left out.

        The dict has `format` (a number), the fields of `SessionInfo` (times in ISO 8601), `state` (key -> value) and
        `namespaces` (name -> key -> value).  Damaged values are left out, and listed under `damaged`, if any, each with
        its `namespace` (empty for a private key) and `key`.

        Raises:
            SessionNotFoundError: This user has no session of the id.
        """
        try:
            return await export_session(self._tiers, self._places(user, session_id).session)
        except Gone:
            raise not_found(session_id) from None

    async def export_user(self, user: str) -> dict[str, Any]:
        """All that there is of a user in this app, as plain JSON.

        The dict has `format`, `org`, `app`, `user`, `state` (the keys that all sessions of the user share -> value) and
        `sessions` (a list of what `export_session` returns); and, if any shared key is damaged, `damaged`, a list of
        these.
        """
        sessions = []
        for info in (await self.list(user, limit=None)).items:
            with suppress(SessionNotFoundError):  # deleted meanwhile
                sessions.append(await self.export_session(user, info.id))
        shared = await export_scope(self._tiers, self.user_scope(user).place)
        return {"format": FORMAT, "org": self.org, "app": self.app, "user": user, **shared, "sessions": sessions}

    async def erase_user(self, user: str) -> ErasureReport:
        """Erase all that there is of a user in this app, from both tiers, while others go on writing.

        Writes, creates and forks of this user are refused with StaleSessionError until a minute after the erasure, so
        that no call that was sent before takes effect after it.

        Raises:
            DurableTierUnavailableError: SQL cannot be reached: call it again, it continues where it stopped.
        """
        return await Erasure(self._tiers, self.user_scope(user).place).run()

    # ---- lists

    async def list(
        self,
        user: str | None = None,
        *,
        all_apps: bool = False,
        limit: int | None = 50,
        cursor: str | None = None,
        order: Order = "updated",
    ) -> SessionPage:
        """A page of the sessions of a user or of the whole app; with `all_apps`, in every app of the org.

        Newest first, by last update or by creation, ties by id.  `limit` None: all; `cursor`: that of the page before.

        Raises:
            InvalidNameError: The limit or the order is wrong, or the cursor is none of this list.
        """
        return await self._listing(user, all_apps, order).page(limit, cursor)

    def iter_sessions(
        self, user: str | None = None, *, all_apps: bool = False, order: Order = "updated"
    ) -> AsyncIterator[SessionInfo]:
        """All sessions of `list`, fetched page by page.

        In `created` order every session that exists throughout the iteration comes exactly once.

        Raises:
            InvalidNameError: The order is wrong.
        """
        return self._listing(user, all_apps, order).sessions()

    async def find(self, session_id: str, *, all_apps: bool = False) -> builtins.list[SessionInfo]:
        """The sessions of this app (`all_apps`: of the org) that have this id, whatever the user, by app and user."""
        app = None if check_flag("all_apps", all_apps) else self.app
        return await find(self._tiers, self.org, app, session_id)

    def _listing(self, user: str | None, all_apps: bool, order: Order) -> Listing:
        if user is not None:
            check_name("user", user, empty=True)
        app = None if check_flag("all_apps", all_apps) else self.app
        return Listing(self._tiers, Owner(self.org, app, user), check_order(order))

    # ---- shared scopes

    def user_scope(self, user: str) -> Scope:
        """The keys that all sessions of a user share, written without prefix."""
        ref = user_ref(self._tiers.settings.buckets, self.org, self.app, check_name("user", user, empty=True))
        return Scope(self._tiers, self._open_unflushed, self._tiers.layout.place(ref))

    def app_scope(self) -> Scope:
        """The keys that all sessions of the app share, written without prefix."""
        ref = app_ref(self._tiers.settings.buckets, self.org, self.app)
        return Scope(self._tiers, self._open_unflushed, self._tiers.layout.place(ref))

    # ---- many sessions at once

    def batch(self, *, check: bool = True) -> Batch:
        """``async with cache.batch() as batch:`` many sessions' reads and writes in shared round trips; see `Batch`.

        With `check`, the end of the block raises the error of the first recorded call that failed; without, it raises
        none of these errors: ask each result.
        """
        return Batch(self, check=check_flag("check", check))

    # ---- durability

    async def flush(self, timeout: float = 30) -> None:
        """Wait until all that this cache object and its handles wrote is durable; `timeout` in seconds.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
            FlushTimeoutError: Something is not durable in time; it is still waiting in Redis.
            DeadLetterError: The database refuses a value that was written.
            WriteLostError: Redis forgot a write before it was durable.
        """
        with within(check_seconds("timeout", timeout)):
            await flush(self._tiers, list(self._all_unflushed), timeout)

    def _places(self, user: str, session_id: str) -> SessionPlaces:
        check_name("user", user, empty=True)
        check_name("a session id", session_id)
        return SessionPlaces.of(self._tiers, self.org, self.app, user, session_id)

    def _open_unflushed(self) -> UnflushedWrites:
        return UnflushedWrites(self._all_unflushed)

    async def _unflushed_source(self) -> Callable[[], UnflushedWrites]:
        """What makes the record of unflushed writes of a new handle; now and then forgets what is durable."""
        if self._to_note is not None:
            await self._note_retention(self._to_note)
        self._tiers.usage.learn()
        if len(self._all_unflushed) >= self._many:
            self._many = len(self._all_unflushed) + _MANY_LEDGERS  # set first: only one call at a time checks
            await prune(self._tiers, list(self._all_unflushed)[:_MANY_LEDGERS])
            self._many = len(self._all_unflushed) + _MANY_LEDGERS
        return self._open_unflushed

    async def _note_retention(self, retention: Retention) -> None:
        """Record it in SQL: one call at a time, and not every call while SQL is away, since hot sessions work on."""
        now = monotonic()
        if now < self._note_from:
            return
        self._note_from = now + _NOTE_AGAIN
        with suppress(DurableTierUnavailableError):
            await note(self._tiers, retention)
            self._to_note = None


class _Bound(SessionCache):
    """A cache over another cache's connections."""

    async def aclose(self) -> None:
        """Nothing to close: the connections are the other cache's."""
