"""The portal: one background thread with an event loop, through which any thread calls the asynchronous API and waits.

A process has one portal.  It rests while the process forks, with its idle connections closed, so that a child inherits
neither a socket that its parent uses nor an open SQLite file, whose locks a fork would corrupt.  Its thread waits then
instead of ending: the last steps of a thread hold locks of C libraries, in which a child would hang.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import selectors
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Generic, Protocol, TypeVar

from sessioncache.errors import ConfigurationError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CANCEL_PATIENCE = 10.0
"""Seconds that an interrupted call may take to end."""
_FORK_PATIENCE = 15.0
"""Seconds that a fork waits for transactions on SQLite files; their own time-outs are shorter."""
_LOOK_AGAIN = 0.005
_PART = 100
"""Items of an iterator that one call fetches."""
_EXIT_PATIENCE = 2.0
"""Seconds that the end of the process waits for connections to close."""


class Guest(Protocol):
    """Something with connections on the portal's loop."""

    async def rest(self) -> None:
        """Close the connections that nobody uses now."""

    def at_rest(self) -> bool:
        """Whether nothing is open that a fork would corrupt; asked while the loop does not run."""

    def forked(self) -> None:
        """This is a child now: what the guest has open is its parent's."""

    async def leave(self) -> None:
        """Close everything: the process ends."""


class Portal:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        # Unlike epoll, poll keeps nothing in the kernel that a forked child would share with its parent.
        self.loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        self._thread: threading.Thread | None = None
        self._halted = threading.Event()
        self._go_on = threading.Event()
        self._rests = False
        self.ended = False
        """Whether the process ends: who waits then waits for nothing."""
        self.guests: set[Guest] = set()

    def start(self) -> None:
        """Let the loop run."""
        self._thread = threading.Thread(target=self.loop.run_forever, name="sessioncache-portal", daemon=True)
        self._thread.start()

    def _halt(self) -> None:
        """Let the loop and its thread wait, wherever the tasks are."""
        self.loop.call_soon_threadsafe(self._wait)
        self._halted.wait()
        self._halted.clear()

    def _wait(self) -> None:
        self._halted.set()
        self._go_on.wait()
        self._go_on.clear()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; its errors are raised here.

        Whatever interrupts the waiting, KeyboardInterrupt say, cancels the call.
        """
        if self.ended or threading.current_thread() is self._thread:
            work.close()
            raise ConfigurationError("the synchronous API was called at the end of the process, or by its own thread")
        return _Call(self, work).result()

    def look(self, found: Callable[[], T]) -> T:
        """What a function finds that is run on the loop's thread, between two steps of the tasks.

        At the end of the process there is no loop to ask, and nothing changes any more.
        """
        if self.ended or threading.current_thread() is self._thread:
            return found()
        return self.call(_result_of(found))

    def rest(self) -> None:
        """Get ready for a fork: stop where nothing is open that it would corrupt."""
        if self.ended or threading.current_thread() is self._thread:
            return
        give_up = time.monotonic() + _FORK_PATIENCE
        while True:
            self.call(self._for_all(lambda guest: guest.rest()))
            self._halt()
            self._rests = True
            if all(guest.at_rest() for guest in list(self.guests)) or time.monotonic() > give_up:
                return
            self.wake()
            time.sleep(_LOOK_AGAIN)

    def wake(self) -> None:
        """Resume, if the loop rests."""
        if self._rests:
            self._rests = False
            self._go_on.set()

    def abandon(self) -> None:
        """This process is a forked child: whatever is on its way here belongs to the parent."""
        for guest in self.guests:
            guest.forked()

    def end(self) -> None:
        """Close what is open and end, within bounds."""
        self.ended = True
        asyncio.run_coroutine_threadsafe(self._leave(), self.loop)
        if self._thread is not None:
            self._thread.join(_EXIT_PATIENCE)
            if not self._thread.is_alive():
                self.loop.close()

    async def _leave(self) -> None:
        await self._for_all(lambda guest: guest.leave())
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_EXIT_PATIENCE / 2)
        await asyncio.sleep(0)  # transports that were closed close their sockets in this turn
        self.loop.stop()

    async def _for_all(self, act: Callable[[Guest], Awaitable[None]]) -> None:
        for guest in list(self.guests):
            try:
                await act(guest)
            except Exception as error:
                logger.debug("closing a connection failed: %s", type(error).__name__)


async def _result_of(function: Callable[[], T]) -> T:
    return function()


class _Call(Generic[T]):
    """One coroutine on the loop, and the thread that waits for it."""

    def __init__(self, portal: Portal, work: Coroutine[Any, Any, T]) -> None:
        self._portal = portal
        self._loop = portal.loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def result(self) -> T:
        try:
            self._loop.call_soon_threadsafe(self._begin)
            self._done.acquire()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            self._done.acquire(timeout=_CANCEL_PATIENCE)
            raise
        assert self._task is not None
        return self._task.result()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, _task: asyncio.Task[T]) -> None:
        # Threads that still wait when the process ends are daemons: woken up, they would only complain.
        if not self._portal.ended:
            self._done.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._work.close()
            self._done.release()


class _Current:
    """The portal of this process, made when it is first needed."""

    def __init__(self) -> None:
        self._portal: Portal | None = None
        self._inherited: list[Portal] = []
        """Those of ancestors, kept: collected, their calls would say good-bye on sockets that ancestors still use."""
        self._turn = threading.Lock()

    def get(self) -> Portal:
        if self._portal is None:
            with self._turn:
                if self._portal is None:
                    portal = Portal()
                    portal.start()
                    self._portal = portal
        return self._portal

    def before_fork(self) -> None:
        self._turn.acquire()
        if self._portal is not None:
            self._portal.rest()

    def after_fork(self) -> None:
        if self._portal is not None:
            self._portal.wake()
        self._turn.release()

    def in_child(self) -> None:
        portal, self._portal, self._turn = self._portal, None, threading.Lock()
        if portal is not None:
            self._inherited.append(portal)
            portal.abandon()

    def end(self) -> None:
        if self._portal is not None:
            self._portal.end()


_current = _Current()


def portal() -> Portal:
    """The portal of this process."""
    return _current.get()


def in_parts(items: AsyncIterator[T]) -> Iterator[T]:
    """What an asynchronous iterator yields, fetched so many at a time."""
    while part := portal().call(_next(items)):
        yield from part


async def _next(items: AsyncIterator[T]) -> list[T]:
    part: list[T] = []
    async for item in items:
        part.append(item)
        if len(part) == _PART:
            break
    return part


os.register_at_fork(before=_current.before_fork, after_in_parent=_current.after_fork, after_in_child=_current.in_child)
atexit.register(_current.end)
