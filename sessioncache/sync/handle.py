"""Synchronous handles: what sessions and shared scopes have in common, and the scopes."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from sessioncache import namespace as asynchronous_namespace
from sessioncache import scope as asynchronous_scope
from sessioncache.cache import SessionCache
from sessioncache.errors import ConfigurationError
from sessioncache.handle import base as asynchronous
from sessioncache.handle.edit import Draft
from sessioncache.handle.local_view import State
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.primitives.values import Json
from sessioncache.sync.likeness import like
from sessioncache.sync.portal import portal
from sessioncache.sync.watch import Watch

T = TypeVar("T")
H = TypeVar("H", bound=asynchronous.Handle)


class Owner(Protocol):
    """The synchronous cache that a handle comes from."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while something moves to the connections of this process."""

    def current(self) -> SessionCache:
        """The asynchronous cache of this process."""

    def moved(self, handle: H) -> H:
        """The handle over the connections of this process."""


class Block(Generic[T]):
    """The block of an asynchronous context manager, entered and left through the portal."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._portal = portal()

    def __enter__(self) -> T:
        entered: list[T] = []
        try:
            return self._portal.call(_entered(self._manager, entered))
        except BaseException as error:
            if entered:  # an interrupt came when it had been entered already
                self._portal.call(_left(self._manager, type(error), error, None))
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if portal() is self._portal:
            return self._portal.call(_left(self._manager, kind, error, trace))
        if kind is None:
            raise ConfigurationError("this block was entered before this process was forked: nothing was written")
        return None  # its parent leaves it


async def _entered(manager: AbstractAsyncContextManager[T], entered: list[T]) -> T:
    entered.append(await manager.__aenter__())
    return entered[0]


async def _left(
    manager: AbstractAsyncContextManager[T],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> bool | None:
    return await manager.__aexit__(kind, error, trace)


class _Seen(NamedTuple):
    """The state as it was between two steps of the portal: other threads could see it half made."""

    changes: int
    """How often it had changed by then: as long as it is that often, it is the same."""
    state: State


class Handle(Generic[H]):
    """What sessions and shared scopes have in common.

    Threads may use one handle at once: each call is one step, as if they were tasks of one event loop.  In a forked
    child a handle continues over connections of the child's own.
    """

    def __init__(self, owner: Owner, handle: H) -> None:
        self._owner = owner
        self._handle = handle
        self._of = owner.current()
        self._seen: _Seen | None = None

    @property
    def _async(self) -> H:
        """The asynchronous handle, over connections of this process.  ConfigurationError once the cache is closed."""
        current = self._owner.current()
        if current is not self._of:
            with self._owner.lock:
                if current is not self._of:
                    self._handle = self._owner.moved(self._handle)
                    self._of = current
        return self._handle

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return portal().call(work)

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError("a handle is not for pickling: pass the cache, the user and the session id")

    def __repr__(self) -> str:
        return repr(self._handle)

    # ---- reading

    @property
    @like(asynchronous.Handle.state)
    def state(self) -> State:
        seen = self._seen
        if seen is None or seen.changes != self._handle._known.changes:
            seen = self._seen = portal().look(self._look)
        return seen.state

    def _look(self) -> _Seen:
        return _Seen(self._handle._known.changes, self._handle.state.frozen())

    @property
    @like(asynchronous.Handle.revision)
    def revision(self) -> int:
        return self._handle.revision

    @like(asynchronous.Handle.get)
    def get(self, key: str, default: Any = None) -> Any:
        return self._run(self._async.get(key, default))

    @like(asynchronous.Handle.refresh)
    def refresh(self) -> None:
        self._run(self._async.refresh())

    @like(asynchronous.Handle.watch)
    def watch(self) -> Watch:
        return Watch(self._async.watch())

    # ---- writing

    @like(asynchronous.Handle.set)
    def set(self, key: str, value: Json) -> int:
        return self._run(self._async.set(key, value))

    @like(asynchronous.Handle.update)
    def update(self, mapping: Mapping[str, Json], *, delete: Iterable[str] = (), if_revision: int | None = None) -> int:
        return self._run(self._async.update(mapping, delete=delete, if_revision=if_revision))

    @like(asynchronous.Handle.delete)
    def delete(self, key: str) -> bool:
        return self._run(self._async.delete(key))

    @like(asynchronous.Handle.increment)
    def increment(self, key: str, by: float = 1) -> Any:
        return self._run(self._async.increment(key, by))

    @like(asynchronous.Handle.append)
    def append(self, key: str, *items: Json) -> int:
        return self._run(self._async.append(key, *items))

    @like(asynchronous.Handle.edit)
    def edit(self, *, overwrite: bool = False) -> Block[Draft]:
        return Block(self._async.edit(overwrite=overwrite))

    @like(asynchronous.Handle.flush)
    def flush(self, timeout: float = 30) -> None:
        self._run(self._async.flush(timeout))


class Scope(Handle[asynchronous_scope.Scope]):
    """The shared state of a user or of an app; its keys are written without prefix."""


class Namespace(Handle[asynchronous_namespace.Namespace]):
    """One namespace of one life of a session; its keys are written without prefix, and prefixes mean nothing in them.

    It is created with its first key.  Every call raises SessionNotFoundError once the session was deleted.
    """

    def __init__(self, owner: Owner, handle: asynchronous_namespace.Namespace) -> None:
        super().__init__(owner, handle)
        self.name = handle.name
        self.session_id = handle.session_id

    @like(asynchronous_namespace.Namespace.items)
    def items(self) -> list[tuple[str, Any]]:
        return self._run(self._async.items())

    @like(asynchronous_namespace.Namespace.readable_items)
    def readable_items(self) -> tuple[dict[str, Any], list[str]]:
        return self._run(self._async.readable_items())

    @like(asynchronous_namespace.Namespace.clear)
    def clear(self) -> int:
        return self._run(self._async.clear())


def moved(handle: H, cache: SessionCache, unflushed: Mapping[UnflushedWrites, UnflushedWrites]) -> H:
    """A handle over the connections of another cache object."""
    writes = None if handle.unflushed is None else unflushed.get(handle.unflushed)
    return handle.moved(cache._tiers, cache._open_unflushed, writes)
