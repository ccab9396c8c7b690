"""Watching: which keys of which scope were written, by any process, without polling.

Write scripts announce each change on a channel of its scope, with the revision before and after it.  The announcements
of a scope form a chain: after a gap in it, or an interruption, revisions are compared (a *look*), and what was missed
is reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from sessioncache.coordination.loop_guard import LoopGuard
from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import (
    ConfigurationError,
    DamagedValueError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    SessionNotFoundError,
)
from sessioncache.hot.fields import Event, Field
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Wanted
from sessioncache.hot.signals import Gone
from sessioncache.hot.subscriptions import Announcement
from sessioncache.primitives.names import KeyScope
from sessioncache.primitives.revisions import ZERO, decode_revision
from sessioncache.primitives.scopes import ScopeKind

MOST_PENDING = 1_000
"""Changes that wait for a slow reader; with one more they are reduced to one per scope, with `missed`."""
MOST_NAMED = 20_000
"""Keys that these changes name in all, likewise."""

_KINDS = {ScopeKind.USER: "user", ScopeKind.APP: "app", ScopeKind.NAMESPACE: "namespace"}


@dataclass(frozen=True, slots=True)
class Change:
    """Keys of one scope that were written, by one call."""

    scope: str
    """``session``, ``user``, ``app``, ``temp`` or ``namespace``."""
    keys: tuple[str, ...]
    """The keys, set and deleted ones, as the watching handle writes them.  Values are not included: read them."""
    revision: int
    """The scope's revision after it."""
    missed: bool
    """Whether more may have changed since the change before than `keys` lists: read the scope again."""


class Watch:
    """What is written to the keys of a handle from now on: ``async for change in session.watch()``.

    It begins with the first `Change` that is asked for; with ``async with session.watch() as changes:`` it has begun
    when the block does, and what is read there misses nothing.  Changes of one scope come in their order.  A reader
    that is too slow, or whose connection broke, gets a change with `missed`.  The expiry of a `temp:` key, and changes
    of title or counters, are not reported.

    Raises:
        SessionNotFoundError: This life of the session is over.
        HotTierUnavailableError: It cannot begin, since Redis cannot be reached.
        DurableTierUnavailableError: It cannot begin, since the scope is not hot and SQL cannot be reached.
        ConfigurationError: The cache was closed.
    """

    def __init__(
        self,
        tiers: Tiers,
        places: Mapping[KeyScope, Place],
        watched: Iterable[KeyScope],
        birth: bytes,
        full: Callable[[KeyScope, str], str],
        gone: Callable[[], SessionNotFoundError],
    ) -> None:
        """Watch those scopes of a handle that are in `watched`; the first scope shows whether the handle's life goes
        on.

        `full` returns a key as the handle writes it, `gone` the error to raise when its life is over.
        """
        self._tiers, self._full, self._gone = tiers, full, gone
        self._places, self._watched = dict(places), frozenset(watched)
        first = next(iter(places))
        self._first = places[first]
        asked = [scope for scope in places if scope is first or (scope in self._watched and scope is not KeyScope.TEMP)]
        self._asked = {scope: Wanted(places[scope], [], birth if scope is first else b"") for scope in asked}
        self._by_channel = {places[scope].channel: scope for scope in asked}
        self.channels = frozenset(self._by_channel) | {place.bucket_channel for place in places.values()}
        self._home = LoopGuard("this watch began", "begin one here")
        self._told: deque[Change] = deque()
        self._held: deque[Change] = deque()
        """Changes reported since the last doubt: they may be of another life (R5)."""
        self._named = 0
        """Keys of all changes that wait."""
        self._latest: dict[KeyScope, bytes] = {}
        """The revision of each scope up to which all changes are reported, or reported as missed."""
        self._incarnations: dict[KeyScope, bytes] = {}
        self._early: deque[tuple[bytes, bytes]] = deque(maxlen=MOST_PENDING)
        """Announcements that came before there was a revision to compare them with."""
        self._end: Exception | None = None
        """The error, or end of iteration, that follows the changes that wait."""
        self._begun = False
        self._doubts = 1
        """How often there was reason to check whether something was missed."""
        self._settled = 0
        """How many of these doubts came before the last look."""
        self._temp_doubt = False
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held by the one task that begins or looks, where several read."""
        self._patience: asyncio.Timeout | None = None
        """The time-out of whoever has the turn: the end of the watch ends it."""

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def __anext__(self) -> Change:
        return await self.next()

    async def next(self) -> Change:
        """The next change, as soon as there is one.

        Raises:
            StopAsyncIteration: `aclose` was called.
        """
        await self.begin()
        while not self._told:
            if self._end is not None:
                raise self._end
            with self._tiers.listener.holding(self):
                if not self._doubt:
                    await self._news.wait()
                    self._news.clear()
                await self._settle()
        change = self._told.popleft()
        self._named -= len(change.keys)
        return change

    async def aclose(self) -> None:
        """End watching; whoever waits for a change gets the end of the iteration."""
        self._told.clear()
        self._held.clear()
        self._finish(StopAsyncIteration())

    async def begin(self) -> None:
        """Begin to watch: what is written from now on is reported."""
        self._home.check()
        if not self._begun:
            async with self._turn:
                await self._begin()

    async def _begin(self) -> None:
        if self._begun or self._end is not None:
            return
        async with self._until_the_end():
            await self._tiers.listen(self)
            await self._compare()
            self._begun = True
        while self._begun and self._early:
            self.heard(*self._early.popleft())

    @asynccontextmanager
    async def _until_the_end(self) -> AsyncIterator[None]:
        """A block that the end of the watch interrupts, however long a tier is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._patience:
                try:
                    yield
                finally:
                    self._patience = None

    def _finish(self, end: Exception) -> None:
        if self._end is None:
            self._end = end
            self._tiers.listener.leave(self)
            if self._patience is not None:
                self._patience.reschedule(0)
        self._news.set()

    # ---- what the listener reports

    def heard(self, channel: bytes, payload: bytes) -> None:
        """Something was announced."""
        if self._end is not None:  # R5: by another life, perhaps
            return
        if not self._begun:
            self._early.append((channel, payload))
            return
        told, scope = Announcement.of(payload), self._by_channel.get(channel)
        if scope is None or told.what in (Event.ENDED, b"?") or told.incarnation != self._incarnations[scope]:
            self._look_again(temp=channel in (self._first.channel, self._first.bucket_channel))
        elif told.what == Event.TEMP_WRITTEN:
            self._note(KeyScope.TEMP, told)
        else:
            self._note(scope, told)

    def interrupted(self) -> None:
        """Announcements may have been missed."""
        self._look_again(temp=True)

    def closed(self) -> None:
        """No more announcements will come."""
        self._finish(ConfigurationError("this cache has been closed"))

    @property
    def _doubt(self) -> bool:
        return self._settled != self._doubts

    def _look_again(self, *, temp: bool) -> None:
        self._doubts += 1
        self._temp_doubt |= temp and self._begun
        self._news.set()

    def _note(self, scope: KeyScope, told: Announcement) -> None:
        last = self._latest.get(scope)
        chained = scope is not KeyScope.TEMP
        if scope not in self._watched or (chained and last is not None and told.revision <= last):
            return
        self._latest[scope] = told.revision
        gap = chained and last is not None and told.before != last
        if gap:  # R5: the missed announcement may have been the end of this life
            self._look_again(temp=False)
        self._tell(scope, told.keys or (), missed=gap or told.keys is None)

    def _tell(self, scope: KeyScope, names: tuple[str, ...], *, missed: bool) -> None:
        keys = tuple(self._full(scope, name) for name in names)
        waiting = self._held if self._doubt else self._told
        waiting.append(Change(self._name(scope), keys, decode_revision(self._latest[scope]), missed))
        self._named += len(keys)
        if len(self._told) + len(self._held) > MOST_PENDING or self._named > MOST_NAMED:
            latest = {change.scope: change for change in (*self._told, *self._held)}
            self._told.clear()
            self._held.clear()
            self._named = 0
            waiting.extend(replace(change, keys=(), missed=True) for change in latest.values())
        self._news.set()

    def _name(self, scope: KeyScope) -> str:
        """The kind of a scope: a shared scope read through a handle of its own has the same as through a session."""
        return scope.value if scope is KeyScope.TEMP else _KINDS.get(self._places[scope].ref.kind, "session")

    # ---- what is read again

    async def _settle(self) -> None:
        """After a doubt, find out whether something was missed, as soon as the tiers can be reached."""
        if self._doubt:
            async with self._turn:
                await self._look()

    async def _look(self) -> None:
        if not self._doubt or self._end is not None:
            return
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((HotTierUnavailableError, DurableTierUnavailableError, DamagedValueError)),
            wait=wait_random_exponential(multiplier=0.05, max=2),
        )
        try:
            async with self._until_the_end():
                await retrying(self._compare)
        except SessionNotFoundError as error:
            self._held.clear()  # R5: of another life
            self._settled = self._doubts
            self._finish(error)

    async def _compare(self) -> None:
        """Compare the revisions of the scopes with those that were reported."""
        doubts, temp, before = self._doubts, self._temp_doubt, dict(self._latest)
        self._temp_doubt = False
        try:
            contents = await self._tiers.perform(lambda: self._tiers.hot.read(list(self._asked.values())))
            if self._begun:  # announcements under way are not missed
                await self._tiers.listener.catch_up()
        except BaseException as error:
            self._temp_doubt |= temp
            if isinstance(error, Gone):
                raise self._gone() from None
            raise
        self._settled = doubts
        self._release()
        for scope, content in zip(self._asked, contents, strict=True):
            self._incarnations[scope] = content.incarnation
            if scope in self._watched:
                self._match(
                    scope,
                    content.head.get(Field.VALUES_REVISION) or content.head.get(Field.REVISION) or ZERO,
                    before.get(scope),
                )
        if temp and KeyScope.TEMP in self._watched:
            self._latest.setdefault(KeyScope.TEMP, ZERO)
            self._tell(KeyScope.TEMP, (), missed=True)

    def _release(self) -> None:
        """The life goes on: deliver the changes that were held back, unless there has been another doubt meanwhile."""
        if self._held and not self._doubt:
            self._told.extend(self._held)
            self._held.clear()
            self._news.set()

    def _match(self, scope: KeyScope, found: bytes, before: bytes | None) -> None:
        """`found` was read some time after everything up to `before` had been reported."""
        if before is None:
            self._latest.setdefault(scope, found)
        elif found > self._latest[scope] or found < before:
            self._latest[scope] = found
            self._tell(scope, (), missed=True)
