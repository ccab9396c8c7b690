"""The worker's registration: what it holds for stuck, and for registered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from sessioncache_worker.registration import Registration

from sessioncache.errors import DurableTierUnavailableError, SessionCacheError
from tests.waiting import wait_until_async


class Fence:
    """Fencing of which one bucket fails."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.asked: list[int] = []

    async def register(self, buckets: Iterable[int]) -> None:
        own = list(buckets)
        self.asked += own
        if self.failing.intersection(own):
            raise DurableTierUnavailableError("it is locked")


class Watched:
    """A registration, and what it reported."""

    def __init__(self) -> None:
        self.fence, self.done, self.failures = Fence(), list[int](), 0
        fence: Any = self.fence
        self.registration = Registration(fence, self._note, self._fail)

    def _note(self, buckets: Collection[int]) -> None:
        self.done += buckets

    async def _fail(self, _: SessionCacheError) -> bool:
        self.failures += 1
        return True


async def test_a_bucket_that_fails_holds_up_no_other_and_is_stuck_until_it_is_known() -> None:
    watched = Watched()
    registration = watched.registration
    watched.fence.failing = {1}
    running = asyncio.create_task(registration.run())
    registration.want([1, 2])
    await wait_until_async(lambda: bool(watched.failures and watched.done), 5, "both were tried")
    assert (watched.done, registration.is_stuck) == ([2], True)
    registration.want([3])
    await wait_until_async(lambda: 3 in watched.done, 5, "the third was tried")
    assert not registration.known([2, 3])
    assert registration.known([1, 2]), "whoever registered it"
    assert not registration.is_stuck
    running.cancel()
    await asyncio.wait({running})


async def test_what_is_asked_for_now_is_not_tried_again() -> None:
    watched = Watched()
    watched.registration.want([4])
    await watched.registration.now()
    await watched.registration.now()
    assert watched.fence.asked == [4]
