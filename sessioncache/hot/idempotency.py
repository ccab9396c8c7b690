"""Idempotency: calls that apply once (R4).

A call is repeated only under an *idempotency key* that the script remembers, and only in the incarnation of the first
attempt: under another one Redis may have forgotten that it was applied.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from sessioncache.errors import (
    ConfigurationError,
    DamagedValueError,
    HotTierUnavailableError,
    MemoryFullError,
    OutcomeUnknownError,
)
from sessioncache.hot.client import Argument, HotClient, Reply
from sessioncache.hot.errors import is_not_executed, is_repeatable, is_unanswered
from sessioncache.hot.layout import Place
from sessioncache.hot.scripts import Script
from sessioncache.primitives.deadline import seconds_left
from sessioncache.primitives.ownership import check_owner
from sessioncache.settings import OPERATION_ID_LIFETIME

Send = Callable[[Script, Sequence[bytes], Sequence[Argument]], Awaitable[Reply]]
"""Sends a script once."""

LIFETIME = OPERATION_ID_LIFETIME * 1_000_000
"""Microseconds for which an idempotency key is remembered."""


class Idempotency:
    """Sends changes so that each is applied at most once, however often it has to be sent."""

    def __init__(self, link: HotClient) -> None:
        self._link = link
        self._incarnations: dict[int, bytes] = {}
        self.database = ""
        """The installation of the database that this process works with, once that is known."""

    def learn(self, bucket: int, incarnation: bytes) -> None:
        """Remember the incarnation of a bucket from a reply.  ConfigurationError where it belongs to another
        database."""
        # Only where it changed: each reply bears one, and nearly always the same.
        if self._incarnations.get(bucket) != incarnation:
            check_owner(incarnation.decode(), self.database)
            self._incarnations[bucket] = incarnation

    def call(
        self,
        script: Script,
        place: Place,
        keys: Sequence[bytes],
        before: Sequence[Argument],
        after: Sequence[Argument],
    ) -> Awaitable[Reply]:
        """The reply of a script that changes something; `before` and `after`: its arguments around those of the key.

        OutcomeUnknownError where it is not known whether it changed anything.
        """
        return self._call(self._link.call, script, place, keys, before, after)

    async def call_beside(
        self,
        script: Script,
        place: Place,
        keys: Sequence[bytes],
        before: Sequence[Argument],
        after: Sequence[Argument],
        beside: Sequence[Sequence[Argument]],
    ) -> list[Reply]:
        """As `call`, followed by the replies of commands that follow it in the same round trip."""
        if not beside:
            return [await self.call(script, place, keys, before, after)]
        found: list[Reply] = []

        async def send(script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Reply:
            # In place of what an earlier attempt found: only what follows the answer that counts is of its moment.
            found[:] = await self._link.call_beside(script, keys, args, beside)
            return found[0]

        return [await self._call(send, script, place, keys, before, after), *found[1:]]

    async def _call(
        self,
        send: Send,
        script: Script,
        place: Place,
        keys: Sequence[bytes],
        before: Sequence[Argument],
        after: Sequence[Argument],
    ) -> Reply:
        while True:
            under = self._incarnations.get(place.ref.bucket) or await self._look_up(place)
            # Without an incarnation there is nothing to be remembered under: the script will ask for registration.
            args = [*before, _new_id() if under else b"", under, LIFETIME, *after]
            try:
                reply = await send(script, keys, args)
            except DamagedValueError as error:  # as for any script that failed
                raise OutcomeUnknownError(f"a part of the write may have been applied: {error}") from error
            except HotTierUnavailableError as error:
                if is_not_executed(error):
                    raise
                if not is_unanswered(error):  # a script that failed may have done a part of its work
                    raise _unknown() from error
                reply = await self._repeat(send, script, keys, args) if under else None
                # What was done under an older incarnation is not remembered under a new one, registered or not.
                if reply is None or reply[0] in (b"incarnation", b"register"):
                    raise _unknown() from error
            # A repeat of a call that was applied: its result is not remembered, and cannot be read again as it was.
            if reply[0] == b"applied":
                raise OutcomeUnknownError("the write was applied, but its result is not known any more: read it")
            if reply[0] != b"incarnation":
                return reply
            self.learn(place.ref.bucket, reply[1])

    async def _look_up(self, place: Place) -> bytes:
        """The incarnation of a bucket that this process has not used yet; the script compares it again."""
        found: bytes | None = await self._link.command(b"HGET", place.control, b"incarnation")
        check_owner((found or b"").decode(), self.database)
        return found or b""

    async def _repeat(self, send: Send, script: Script, keys: Sequence[bytes], args: list[Argument]) -> Reply | None:
        """Send the same call again until there is an answer; None when time is up, or it is refused by now."""
        if seconds_left() <= 0:
            return None
        again = AsyncRetrying(
            retry=retry_if_exception(is_repeatable),
            wait=wait_random_exponential(multiplier=0.02, max=0.5),
            stop=stop_after_delay(seconds_left()),
            reraise=True,
        )
        try:
            return await again(send, script, keys, args)
        # A refusal proves nothing about the first attempt, which may have been applied before.
        except (HotTierUnavailableError, MemoryFullError, ConfigurationError, DamagedValueError):
            return None


def _unknown() -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "Redis did not answer after the write was sent: it may have been applied; read before repeating it"
    )


class _Ids:
    """Ids that no other process uses: random for each process, forked ones included, then counted."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self._own = os.urandom(9)
        self._count = count()

    def next(self) -> bytes:
        return self._own + next(self._count).to_bytes(6, "big")


_new_id = _Ids().next
