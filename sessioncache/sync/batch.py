"""Synchronous batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from sessioncache import batch as asynchronous
from sessioncache.errors import ConfigurationError
from sessioncache.info import SessionInfo
from sessioncache.sync.handle import Block, Handle
from sessioncache.sync.likeness import like
from sessioncache.sync.session import Session
from sessioncache.values import Json

if TYPE_CHECKING:
    from sessioncache.sync.cache import SessionCache

T = TypeVar("T")
A = TypeVar("A")


class Pending(Generic[T]):
    """The result of a call of a batch, there once the block has ended."""

    def __init__(self, pending: asynchronous.Pending[Any], made: Callable[[Any], T]) -> None:
        self._pending = pending
        self._made = made

    @property
    @like(asynchronous.Pending.error)
    def error(self) -> Exception | None:
        return self._pending.error

    @like(asynchronous.Pending.result)
    def result(self) -> T:
        return self._made(self._pending.result())


class BatchCalls:
    """The calls of a batch on one session, namespace or shared scope."""

    def __init__(self, calls: asynchronous.BatchCalls) -> None:
        self._calls = calls

    @like(asynchronous.BatchCalls.get)
    def get(self, key: str, default: Any = None) -> Pending[Any]:
        return _as_it_is(self._calls.get(key, default))

    @like(asynchronous.BatchCalls.refresh)
    def refresh(self) -> Pending[None]:
        return _as_it_is(self._calls.refresh())

    @like(asynchronous.BatchCalls.set)
    def set(self, key: str, value: Json) -> Pending[int]:
        return _as_it_is(self._calls.set(key, value))

    @like(asynchronous.BatchCalls.update)
    def update(
        self, mapping: Mapping[str, Json], *, delete: Iterable[str] = (), if_revision: int | None = None
    ) -> Pending[int]:
        return _as_it_is(self._calls.update(mapping, delete=delete, if_revision=if_revision))

    @like(asynchronous.BatchCalls.delete)
    def delete(self, key: str) -> Pending[bool]:
        return _as_it_is(self._calls.delete(key))

    @like(asynchronous.BatchCalls.increment)
    def increment(self, key: str, by: float = 1) -> Pending[Any]:
        return _as_it_is(self._calls.increment(key, by))

    @like(asynchronous.BatchCalls.append)
    def append(self, key: str, *items: Json) -> Pending[int]:
        return _as_it_is(self._calls.append(key, *items))


@like(asynchronous.Batch)
class Batch:
    def __init__(self, cache: SessionCache, *, check: bool) -> None:
        self._cache = cache
        self._batch = cache.current().batch(check=check)
        self._block = Block(self._batch)

    def __enter__(self) -> Self:
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.__exit__(kind, error, trace)

    @like(asynchronous.Batch.on)
    def on(self, handle: Handle[Any]) -> BatchCalls:
        if not isinstance(handle, Handle):
            raise ConfigurationError("a batch is for sessions, namespaces and scopes of its own cache")
        return BatchCalls(self._batch.on(handle._async))

    @like(asynchronous.Batch.create)
    def create(
        self,
        user: str,
        *,
        session_id: str | None = None,
        state: Mapping[str, Json] | None = None,
        title: str = "",
    ) -> Pending[Session]:
        pending = self._batch.create(user, session_id=session_id, state=state, title=title)
        return Pending(pending, self._session)

    @like(asynchronous.Batch.get)
    def get(self, user: str, session_id: str) -> Pending[Session]:
        return Pending(self._batch.get(user, session_id), self._session)

    @like(asynchronous.Batch.get_or_create)
    def get_or_create(
        self, user: str, session_id: str, *, state: Mapping[str, Json] | None = None, title: str = ""
    ) -> Pending[tuple[Session, bool]]:
        pending = self._batch.get_or_create(user, session_id, state=state, title=title)
        return Pending(pending, lambda found: (self._session(found[0]), found[1]))

    @like(asynchronous.Batch.delete)
    def delete(self, user: str, session_id: str) -> Pending[bool]:
        return _as_it_is(self._batch.delete(user, session_id))

    @like(asynchronous.Batch.touch)
    def touch(
        self, user: str, session_id: str, *, messages: int = 0, tokens: int = 0, first_message: str | None = None
    ) -> Pending[SessionInfo]:
        return _as_it_is(
            self._batch.touch(user, session_id, messages=messages, tokens=tokens, first_message=first_message)
        )

    @like(asynchronous.Batch.rename)
    def rename(self, user: str, session_id: str, title: str) -> Pending[SessionInfo]:
        return _as_it_is(self._batch.rename(user, session_id, title))

    def _session(self, handle: Any) -> Session:
        return Session(self._cache, handle)


def _as_it_is(pending: asynchronous.Pending[A]) -> Pending[A]:
    return Pending(pending, lambda value: value)
