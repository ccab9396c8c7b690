"""Synchronous batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from sessioncache.batch import batch as asynchronous
from sessioncache.batch import calls as asynchronous_calls
from sessioncache.batch import result as asynchronous_pending
from sessioncache.errors import ConfigurationError
from sessioncache.primitives.session_info import SessionInfo
from sessioncache.primitives.values import Json
from sessioncache.records import Record
from sessioncache.sync.handle import Block, Handle, Namespace, Scope
from sessioncache.sync.likeness import like
from sessioncache.sync.session import Session

if TYPE_CHECKING:
    from sessioncache.sync.cache import SessionCache

T = TypeVar("T")
A = TypeVar("A")
C = TypeVar("C", bound=asynchronous_calls.BatchCalls[Any])


class Pending(Generic[T]):
    """The result of a call of a batch, available once the block has ended."""

    def __init__(self, pending: asynchronous_pending.Pending[Any], made: Callable[[Any], T]) -> None:
        self._pending = pending
        self._made = made
        self._results: list[T] = []
        """The result, once it was asked for."""

    @property
    @like(asynchronous_pending.Pending.error)
    def error(self) -> Exception | None:
        return self._pending.error

    @like(asynchronous_pending.Pending.result)
    def result(self) -> T:
        if not self._results:
            self._results.append(self._made(self._pending.result()))
        return self._results[0]


@like(asynchronous_calls.BatchCalls)
class BatchCalls(Generic[C]):
    def __init__(self, calls: C) -> None:
        self._calls = calls

    @like(asynchronous_calls.BatchCalls.get)
    def get(self, key: str, default: Any = None) -> Pending[Any]:
        return _as_it_is(self._calls.get(key, default))

    @like(asynchronous_calls.BatchCalls.refresh)
    def refresh(self) -> Pending[None]:
        return _as_it_is(self._calls.refresh())

    @like(asynchronous_calls.BatchCalls.set)
    def set(self, key: str, value: Json) -> Pending[int]:
        return _as_it_is(self._calls.set(key, value))

    @like(asynchronous_calls.BatchCalls.update)
    def update(
        self, mapping: Mapping[str, Json], *, delete: Iterable[str] = (), if_revision: int | None = None
    ) -> Pending[int]:
        return _as_it_is(self._calls.update(mapping, delete=delete, if_revision=if_revision))

    @like(asynchronous_calls.BatchCalls.delete)
    def delete(self, key: str) -> Pending[bool]:
        return _as_it_is(self._calls.delete(key))

    @like(asynchronous_calls.BatchCalls.increment)
    def increment(self, key: str, by: float = 1) -> Pending[Any]:
        return _as_it_is(self._calls.increment(key, by))

    @like(asynchronous_calls.BatchCalls.append)
    def append(self, key: str, *items: Json) -> Pending[int]:
        return _as_it_is(self._calls.append(key, *items))


@like(asynchronous_calls.SessionCalls)
class SessionCalls(BatchCalls[asynchronous_calls.SessionCalls]):
    @like(asynchronous_calls.SessionCalls.touch)
    def touch(self, *, messages: int = 0, tokens: int = 0, first_message: str | None = None) -> Pending[SessionInfo]:
        return _as_it_is(self._calls.touch(messages=messages, tokens=tokens, first_message=first_message))

    @like(asynchronous_calls.SessionCalls.rename)
    def rename(self, title: str) -> Pending[SessionInfo]:
        return _as_it_is(self._calls.rename(title))

    @like(asynchronous_calls.SessionCalls.records)
    def records(self) -> Pending[list[Record]]:
        return _as_it_is(self._calls.records())

    @like(asynchronous_calls.SessionCalls.upsert_record)
    def upsert_record(self, record: Record) -> Pending[bool]:
        return _as_it_is(self._calls.upsert_record(record))

    @like(asynchronous_calls.SessionCalls.clear)
    def clear(self) -> Pending[int]:
        return _as_it_is(self._calls.clear())


@like(asynchronous_calls.NamespaceCalls)
class NamespaceCalls(BatchCalls[asynchronous_calls.NamespaceCalls]):
    @like(asynchronous_calls.NamespaceCalls.items)
    def items(self) -> Pending[list[tuple[str, Any]]]:
        return _as_it_is(self._calls.items())

    @like(asynchronous_calls.NamespaceCalls.clear)
    def clear(self) -> Pending[int]:
        return _as_it_is(self._calls.clear())


@like(asynchronous.Batch)
class Batch:
    def __init__(self, cache: SessionCache, *, check: bool) -> None:
        self._cache = cache
        self._batch = cache.current().batch(check=check)
        self._block = Block(self._batch)

    def __enter__(self) -> Self:
        self._batch._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block.__exit__(kind, error, trace)

    @overload
    def on(self, handle: Session) -> SessionCalls: ...
    @overload
    def on(self, handle: Namespace) -> NamespaceCalls: ...
    @overload
    def on(self, handle: Scope) -> BatchCalls[Any]: ...
    @like(asynchronous.Batch.on)
    def on(self, handle: Handle[Any]) -> BatchCalls[Any]:
        if not isinstance(handle, Handle):
            raise ConfigurationError("a batch is for sessions, namespaces and scopes of its own cache")
        calls = self._batch.on(handle._async)
        if isinstance(calls, asynchronous_calls.SessionCalls):
            return SessionCalls(calls)
        return NamespaceCalls(calls) if isinstance(calls, asynchronous_calls.NamespaceCalls) else BatchCalls(calls)

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


def _as_it_is(pending: asynchronous_pending.Pending[A]) -> Pending[A]:
    return Pending(pending, lambda value: value)
