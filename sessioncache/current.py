"""The ambient session: the one that code deep inside a run works for, without being handed it.  Pure: no I/O.

Each task and each thread has its own binding: a task begins with the one of the task that made it, a new thread with
none (`asyncio.to_thread` passes it on), and neither changes what others see.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sessioncache.errors import NoSessionError

if TYPE_CHECKING:
    from sessioncache.session import Session

S = TypeVar("S")


class _Binding:
    """One session, bound once; compared by identity, since a session may be bound twice."""

    __slots__ = ("session",)

    def __init__(self, session: Any) -> None:
        self.session = session


_bindings: ContextVar[tuple[_Binding, ...]] = ContextVar("sessioncache_bindings", default=())


@contextmanager
def bound(session: S) -> Iterator[S]:
    """Make a session (of either API) the ambient one within the block, and the previous one after it."""
    binding = _Binding(session)
    _bindings.set((*_bindings.get(), binding))
    try:
        yield session
    finally:
        # not simply the last one: blocks that generators hold open may end in another order, or in another task.
        _bindings.set(tuple(one for one in _bindings.get() if one is not binding))


def current_session() -> Session:
    """The session that was bound last in this task or thread, as the very object that was bound.

    Raises:
        NoSessionError: No session is bound here.
    """
    bindings = _bindings.get()
    if not bindings:
        raise NoSessionError("no session is bound here: use `with session.bind():` or `async with cache.resume(…):`")
    return cast("Session", bindings[-1].session)
