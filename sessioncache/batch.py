"""Batches: many sessions' reads and writes, noted first and then sent at once, so that they share round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from sessioncache.errors import ConfigurationError
from sessioncache.handle import Handle
from sessioncache.info import SessionInfo
from sessioncache.session import Session
from sessioncache.values import Json

if TYPE_CHECKING:
    from sessioncache.cache import SessionCache

T = TypeVar("T")

_AT_ONCE = 256
"""Calls of one batch that are under way at the same time: more make no round trip cheaper."""


class Pending(Generic[T]):
    """The result of a call of a batch, there once the block has ended."""

    __slots__ = ("_call", "_error", "_state", "_value")

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call: Callable[[], Awaitable[T]] | None = call
        self._value: T | None = None
        self._error: Exception | None = None
        self._state = "is sent when its block ends: ask for results after the block"

    @property
    def error(self) -> Exception | None:
        """Why the call failed; None where it did not.  ConfigurationError where it was not made."""
        if self._state:
            raise ConfigurationError(f"this batch {self._state}")
        return self._error

    def result(self) -> T:
        """What the call returned; its error is raised where it failed.  ConfigurationError where it was not made."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    async def _run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        try:
            self._value = await call()
        except Exception as error:
            self._error = error
        self._state = ""

    def _give_up(self, why: str) -> None:
        self._call = None
        if self._state:
            self._state = why


class BatchCalls:
    """The calls of a batch on one session, namespace or shared scope."""

    __slots__ = ("_handle", "_note")

    def __init__(self, handle: Handle, note: Callable[[Callable[[], Awaitable[Any]]], Pending[Any]]) -> None:
        self._handle = handle
        self._note = note

    def get(self, key: str, default: Any = None) -> Pending[Any]:
        """See `Session.get`."""
        return self._note(lambda: self._handle.get(key, default))

    def refresh(self) -> Pending[None]:
        """See `Session.refresh`; the state is the handle's."""
        return self._note(self._handle.refresh)

    def set(self, key: str, value: Json) -> Pending[int]:
        """See `Session.set`."""
        return self._note(lambda: self._handle.set(key, value))

    def update(
        self, mapping: Mapping[str, Json], *, delete: Iterable[str] = (), if_revision: int | None = None
    ) -> Pending[int]:
        """See `Session.update`."""
        return self._note(lambda: self._handle.update(mapping, delete=delete, if_revision=if_revision))

    def delete(self, key: str) -> Pending[bool]:
        """See `Session.delete`."""
        return self._note(lambda: self._handle.delete(key))

    def increment(self, key: str, by: float = 1) -> Pending[Any]:
        """See `Session.increment`."""
        return self._note(lambda: self._handle.increment(key, by))

    def append(self, key: str, *items: Json) -> Pending[int]:
        """See `Session.append`."""
        return self._note(lambda: self._handle.append(key, *items))


class Batch:
    """Calls that are made together: ``async with cache.batch() as batch:``.

    A call is noted, and made when the block ends without an error; what it returns is asked of its `Pending` then.
    Calls on one session, namespace or shared scope are made in the order in which they were noted, those on different
    ones side by side.  Each is a call of its own, which may fail alone; what must happen together or not at all is
    one `update`.
    """

    def __init__(self, cache: SessionCache, *, check: bool) -> None:
        self._cache = cache
        self._check = check
        self._noted: dict[object, list[Pending[Any]]] = {}
        """By the scope that they are on."""
        self._order: list[Pending[Any]] = []
        self._state = "has not begun: use it by async with"

    # ---- noting

    def on(self, handle: Handle) -> BatchCalls:
        """The calls on a session, namespace or shared scope of this cache.  ConfigurationError for anything else."""
        if not isinstance(handle, Handle) or handle._tiers is not self._cache._tiers:
            raise ConfigurationError("a batch is for sessions, namespaces and scopes of its own cache")
        lane = handle._places()[handle._own].hash
        return BatchCalls(handle, lambda call: self._note(lane, call))

    def create(
        self,
        user: str,
        *,
        session_id: str | None = None,
        state: Mapping[str, Json] | None = None,
        title: str = "",
    ) -> Pending[Session]:
        """See `SessionCache.create`."""
        lane = object() if session_id is None else self._lane(user, session_id)
        return self._note(lane, lambda: self._cache.create(user, session_id=session_id, state=state, title=title))

    def get(self, user: str, session_id: str) -> Pending[Session]:
        """See `SessionCache.get`."""
        return self._note(self._lane(user, session_id), lambda: self._cache.get(user, session_id))

    def get_or_create(
        self, user: str, session_id: str, *, state: Mapping[str, Json] | None = None, title: str = ""
    ) -> Pending[tuple[Session, bool]]:
        """See `SessionCache.get_or_create`."""
        return self._note(
            self._lane(user, session_id),
            lambda: self._cache.get_or_create(user, session_id, state=state, title=title),
        )

    def delete(self, user: str, session_id: str) -> Pending[bool]:
        """See `SessionCache.delete`."""
        return self._note(self._lane(user, session_id), lambda: self._cache.delete(user, session_id))

    def touch(
        self, user: str, session_id: str, *, messages: int = 0, tokens: int = 0, first_message: str | None = None
    ) -> Pending[SessionInfo]:
        """See `SessionCache.touch`."""
        return self._note(
            self._lane(user, session_id),
            lambda: self._cache.touch(user, session_id, messages=messages, tokens=tokens, first_message=first_message),
        )

    def rename(self, user: str, session_id: str, title: str) -> Pending[SessionInfo]:
        """See `SessionCache.rename`."""
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

    async def __aenter__(self) -> Self:
        if self._state != "has not begun: use it by async with":
            raise ConfigurationError(f"this batch {self._state}")
        self._state = ""
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
