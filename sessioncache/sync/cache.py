"""The synchronous cache: sessions of one app, for scripts, notebooks and threads."""

from __future__ import annotations

import builtins
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from sessioncache import cache as asynchronous
from sessioncache.errors import ConfigurationError
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.operations.erase_user import ErasureReport
from sessioncache.primitives.cursors import Order
from sessioncache.primitives.names import check_name
from sessioncache.primitives.session_info import SessionInfo, SessionPage
from sessioncache.primitives.values import Json
from sessioncache.sync.batch import Batch
from sessioncache.sync.connection import Connection, Recipe
from sessioncache.sync.handle import Block, H, Scope, moved
from sessioncache.sync.likeness import like
from sessioncache.sync.portal import in_parts, portal
from sessioncache.sync.session import Session

T = TypeVar("T")


class SessionCache:
    """Session state of one app (and org), shared by all processes that use the same Redis and database.

    Any number of threads may use one cache and its handles at once.  A forked child may use them too: it makes
    connections of its own at its first call.  Pickled, for a process that is not forked, a cache is what it takes to
    connect, passwords of URLs included.

    Every call may raise the errors that are listed at `sessioncache.SessionCache`, besides those that it lists itself.
    """

    app: str
    org: str

    def __init__(self, *_: object, **__: object) -> None:
        """Not to be called: open a cache with `connect`.

        A client or engine of the caller's belongs to an event loop of the caller's, or to none; the calls run on
        another one, which cannot share its connections.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            "a synchronous cache connects by URLs: SessionCache.connect(…); clients and engines belong to an event loop"
        )

    @classmethod
    def _over(cls, connection: Connection, app: str, org: str, *, bound: bool) -> SessionCache:
        cache = object.__new__(_Bound if bound else SessionCache)
        cache.app = check_name("app", app, empty=True)
        cache.org = check_name("org", org, empty=True)
        cache._connection = connection
        cache._root = cache._cache = None
        cache._all_unflushed = {}
        return cache

    _connection: Connection
    _root: asynchronous.SessionCache | None
    """What the connection had open when `_cache` was made."""
    _cache: asynchronous.SessionCache | None
    _all_unflushed: dict[UnflushedWrites, UnflushedWrites]
    """What was written before a fork, by the handle or cache that stands for it in this process."""

    @classmethod
    @like(asynchronous.SessionCache.connect)
    def connect(
        cls,
        redis_url: str | None = None,
        database_url: str | None = None,
        *,
        app: str,
        org: str = "",
        data_dir: str | None = None,
        **settings: Any,
    ) -> SessionCache:
        connection = Connection(Recipe.of(redis_url, database_url, app, org, data_dir, settings))
        cache = cls._over(connection, app, org, bound=False)
        cache.current()
        return cache

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; may be called again.  Any other call raises ConfigurationError from then on.

        Unflushed writes stay in Redis, and a worker flushes them.
        """
        self._connection.close()

    @like(asynchronous.SessionCache.bound_to)
    def bound_to(self, *, org: str | None = None, app: str | None = None) -> SessionCache:
        org, app = self.org if org is None else org, self.app if app is None else app
        return self._over(self._connection, app, org, bound=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._connection.recipe, self.app, self.org, type(self) is _Bound)

    # ---- the asynchronous cache

    def current(self) -> asynchronous.SessionCache:
        """The asynchronous cache behind this one, opened in this process.  ConfigurationError once closed."""
        root = self._connection.cache()
        if root is not self._root:
            with self._connection.lock:
                self._move_to(root)
        assert self._cache is not None
        return self._cache

    def _move_to(self, root: asynchronous.SessionCache) -> None:
        if root is self._root:
            return
        made = self._made(root)
        before = set() if self._cache is None else self._cache._all_unflushed
        copies = {writes: writes.copied(made._all_unflushed) for writes in before}
        earlier = {writes: copies[now] for writes, now in self._all_unflushed.items() if now in copies}
        self._all_unflushed = earlier | copies
        self._cache, self._root = made, root

    def _made(self, root: asynchronous.SessionCache) -> asynchronous.SessionCache:
        return root

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while something moves to the connections of this process."""
        return self._connection.lock

    def moved(self, handle: H) -> H:
        """A handle from before a fork, over the connections of this process."""
        return moved(handle, self.current(), self._all_unflushed)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return portal().call(work)

    # ---- sessions

    @like(asynchronous.SessionCache.create)
    def create(
        self,
        user: str,
        *,
        session_id: str | None = None,
        state: Mapping[str, Json] | None = None,
        title: str = "",
    ) -> Session:
        return Session(self, self._run(self.current().create(user, session_id=session_id, state=state, title=title)))

    @like(asynchronous.SessionCache.get)
    def get(self, user: str, session_id: str) -> Session:
        return Session(self, self._run(self.current().get(user, session_id)))

    @like(asynchronous.SessionCache.get_or_create)
    def get_or_create(
        self, user: str, session_id: str, *, state: Mapping[str, Json] | None = None, title: str = ""
    ) -> tuple[Session, bool]:
        handle, created = self._run(self.current().get_or_create(user, session_id, state=state, title=title))
        return Session(self, handle), created

    @like(asynchronous.SessionCache.resume)
    @contextmanager
    def resume(self, session_id: str, *, user: str | None = None) -> Iterator[Session]:
        with Block(self.current().resume(session_id, user=user)) as handle:
            session = Session(self, handle)
            with session.bind():
                yield session

    @like(asynchronous.SessionCache.delete)
    def delete(self, user: str, session_id: str) -> bool:
        return self._run(self.current().delete(user, session_id))

    @like(asynchronous.SessionCache.fork)
    def fork(self, user: str, session_id: str, *, new_id: str | None = None) -> Session:
        return Session(self, self._run(self.current().fork(user, session_id, new_id=new_id)))

    @like(asynchronous.SessionCache.touch)
    def touch(
        self, user: str, session_id: str, *, messages: int = 0, tokens: int = 0, first_message: str | None = None
    ) -> SessionInfo:
        cache = self.current()
        return self._run(cache.touch(user, session_id, messages=messages, tokens=tokens, first_message=first_message))

    @like(asynchronous.SessionCache.rename)
    def rename(self, user: str, session_id: str, title: str) -> SessionInfo:
        return self._run(self.current().rename(user, session_id, title))

    # ---- exporting, and erasing

    @like(asynchronous.SessionCache.export_session)
    def export_session(self, user: str, session_id: str) -> dict[str, Any]:
        return self._run(self.current().export_session(user, session_id))

    @like(asynchronous.SessionCache.export_user)
    def export_user(self, user: str) -> dict[str, Any]:
        return self._run(self.current().export_user(user))

    @like(asynchronous.SessionCache.erase_user)
    def erase_user(self, user: str) -> ErasureReport:
        return self._run(self.current().erase_user(user))

    # ---- lists

    @like(asynchronous.SessionCache.list)
    def list(
        self,
        user: str | None = None,
        *,
        all_apps: bool = False,
        limit: int | None = 50,
        cursor: str | None = None,
        order: Order = "updated",
    ) -> SessionPage:
        page = self.current().list(user, all_apps=all_apps, limit=limit, cursor=cursor, order=order)
        return self._run(page)

    @like(asynchronous.SessionCache.iter_sessions)
    def iter_sessions(
        self, user: str | None = None, *, all_apps: bool = False, order: Order = "updated"
    ) -> Iterator[SessionInfo]:
        return in_parts(self.current().iter_sessions(user, all_apps=all_apps, order=order))

    @like(asynchronous.SessionCache.find)
    def find(self, session_id: str, *, all_apps: bool = False) -> builtins.list[SessionInfo]:
        return self._run(self.current().find(session_id, all_apps=all_apps))

    # ---- shared scopes

    @like(asynchronous.SessionCache.user_scope)
    def user_scope(self, user: str) -> Scope:
        return Scope(self, self.current().user_scope(user))

    @like(asynchronous.SessionCache.app_scope)
    def app_scope(self) -> Scope:
        return Scope(self, self.current().app_scope())

    # ---- many sessions at once

    @like(asynchronous.SessionCache.batch)
    def batch(self, *, check: bool = True) -> Batch:
        return Batch(self, check=check)

    # ---- durability

    @like(asynchronous.SessionCache.flush)
    def flush(self, timeout: float = 30) -> None:
        self._run(self.current().flush(timeout))


class _Bound(SessionCache):
    """A cache over another cache's connections."""

    def close(self) -> None:
        """Nothing to close: the connections are the other cache's."""

    def _made(self, root: asynchronous.SessionCache) -> asynchronous.SessionCache:
        return root.bound_to(org=self.org, app=self.app)


def _unpickled(recipe: Recipe, app: str, org: str, bound: bool) -> SessionCache:
    return SessionCache._over(Connection(recipe), app, org, bound=bound)
