"""Batches: many sessions' reads and writes are recorded first and then sent together, so that they share round
trips."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from sessioncache.batch.calls import BatchCalls, NamespaceCalls, SessionCalls, kept_values
from sessioncache.batch.result import Pending
from sessioncache.errors import ConfigurationError
from sessioncache.handle.base import Handle
from sessioncache.namespace import Namespace
from sessioncache.operations.touch import check_title, counting
from sessioncache.primitives.names import check_name, split_key
from sessioncache.primitives.session_info import SessionInfo
from sessioncache.primitives.values import Json
from sessioncache.scope import Scope
from sessioncache.session import Session

if TYPE_CHECKING:
    from sessioncache.cache import SessionCache

T = TypeVar("T")

_AT_ONCE = 64
"""Calls of one batch that are under way at the same time.

With more, no round trip gets cheaper, and where sessions are cold each waits longer for SQL, within its time-out.
"""
_NEW = "has not begun: use it by async with"


class Batch:
    """Calls that are made together: ``async with cache.batch() as batch:``.

    A call is recorded, and made when the block ends without an error; its `Pending` has the result then.  Calls on one
    session, namespace or shared scope are made in the order in which they were recorded, those on different ones side
    by side.  Each is a call of its own, which may fail alone; what must happen together or not at all is one `update`.
    """

    def __init__(self, cache: SessionCache, *, check: bool) -> None:
        self._cache = cache
        self._check = check
        self._noted: dict[object, list[Pending[Any]]] = {}
        """The recorded calls by the scope that they are on."""
        self._order: list[Pending[Any]] = []
        self._state = _NEW

    # ---- recording

    @overload
    def on(self, handle: Session) -> SessionCalls: ...
    @overload
    def on(self, handle: Namespace) -> NamespaceCalls: ...
    @overload
    def on(self, handle: Scope) -> BatchCalls[Scope]: ...
    def on(self, handle: Handle) -> BatchCalls[Any]:
        """The calls on a session, namespace or shared scope of this cache.

        Raises:
            ConfigurationError: The handle is none of these, or is of another cache.
        """
        if not isinstance(handle, Handle) or handle._tiers is not self._cache._tiers:
            raise ConfigurationError("a batch is for sessions, namespaces and scopes of its own cache")
        lane = handle._places()[handle._own].hash

        def note(call: Callable[[], Awaitable[Any]]) -> Pending[Any]:
            return self._note(lane, call)

        if isinstance(handle, Session):
            return SessionCalls(handle, note)
        return NamespaceCalls(handle, note) if isinstance(handle, Namespace) else BatchCalls(handle, note)

    def create(
        self,
        user: str,
        *,
        session_id: str | None = None,
        state: Mapping[str, Json] | None = None,
        title: str = "",
    ) -> Pending[Session]:
        """See `SessionCache.create`."""
        check_name("user", user, empty=True)
        check_title(title)
        lane = object() if session_id is None else self._lane(user, session_id)
        kept = kept_values({} if state is None else state, split_key)
        return self._note(lane, lambda: self._cache.create(user, session_id=session_id, state=kept, title=title))

    def get(self, user: str, session_id: str) -> Pending[Session]:
        """See `SessionCache.get`."""
        return self._note(self._lane(user, session_id), lambda: self._cache.get(user, session_id))

    def get_or_create(
        self, user: str, session_id: str, *, state: Mapping[str, Json] | None = None, title: str = ""
    ) -> Pending[tuple[Session, bool]]:
        """See `SessionCache.get_or_create`."""
        check_title(title)
        kept = kept_values({} if state is None else state, split_key)
        return self._note(
            self._lane(user, session_id),
            lambda: self._cache.get_or_create(user, session_id, state=kept, title=title),
        )

    def delete(self, user: str, session_id: str) -> Pending[bool]:
        """See `SessionCache.delete`."""
        return self._note(self._lane(user, session_id), lambda: self._cache.delete(user, session_id))

    def touch(
        self, user: str, session_id: str, *, messages: int = 0, tokens: int = 0, first_message: str | None = None
    ) -> Pending[SessionInfo]:
        """See `SessionCache.touch`."""
        counting(messages, tokens, first_message)
        return self._note(
            self._lane(user, session_id),
            lambda: self._cache.touch(user, session_id, messages=messages, tokens=tokens, first_message=first_message),
        )

    def rename(self, user: str, session_id: str, title: str) -> Pending[SessionInfo]:
        """See `SessionCache.rename`."""
        check_title(title)
        return self._note(self._lane(user, session_id), lambda: self._cache.rename(user, session_id, title))

    def _lane(self, user: str, session_id: str) -> bytes:
        return self._cache._places(user, session_id).session.hash

    def _note(self, lane: object, call: Callable[[], Awaitable[T]]) -> Pending[T]:
        if self._state:
            raise ConfigurationError(f"this batch {self._state}")
        pending = Pending(call)
        self._noted.setdefault(lane, []).append(pending)
        self._order.append(pending)
        return pending

    # ---- sending

    def _begin(self) -> None:
        """Record calls from now on.  ConfigurationError for a batch that was used already."""
        if self._state != _NEW:
            raise ConfigurationError(f"this batch {self._state or 'has begun already: it has one block'}")
        self._state = ""

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "was used already: begin another one"
        if kind is not None:
            self._give_up("was not sent, since its block ended with an error")
            return
        try:
            await self._send()
        finally:
            self._give_up("was cancelled before this call ended: it may have been made")
        if self._check:
            self._raise_first()

    async def _send(self) -> None:
        lanes = iter(self._noted.values())
        async with asyncio.TaskGroup() as runners:
            for _ in range(min(_AT_ONCE, len(self._noted))):
                runners.create_task(_run(lanes))

    def _give_up(self, why: str) -> None:
        for pending in self._order:
            pending._give_up(why)
        self._noted.clear()

    def _raise_first(self) -> None:
        failed = [pending for pending in self._order if pending.error is not None]
        if not failed:
            return
        error = failed[0].error
        assert error is not None
        if len(self._order) > 1:
            error.add_note(f"{len(failed)} of the {len(self._order)} calls of this batch failed; this is the first")
        raise error


async def _run(lanes: Iterator[list[Pending[Any]]]) -> None:
    """Make the calls of one scope after another, as long as there are any."""
    for lane in lanes:
        for pending in lane:
            await pending._run()
