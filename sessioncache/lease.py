"""Run leases: one runner at a time for a session, whose late writes are refused once it lost the lease.

The lease's token is a fencing token: every write of the holder bears it, and the script that writes compares it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from types import TracebackType
from typing import TYPE_CHECKING

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import (
    ConfigurationError,
    DamagedValueError,
    DurableTierUnavailableError,
    HotTierUnavailableError,
    LeaseUnavailableError,
)
from sessioncache.hot.layout import Place
from sessioncache.hot.signals import Gone
from sessioncache.primitives.deadline import check_seconds

if TYPE_CHECKING:
    from sessioncache.session import Session

logger = logging.getLogger(__name__)

MAX_TTL = 3_600.0
"""Longest lease in seconds; it is renewed as long as its holder lives."""
_PAUSE = 0.1
"""Most seconds between two attempts to take a lease that another runner holds."""


class Lease:
    """The block of ``async with session.lease() as held``: `held` is the session, and its writes are fenced."""

    def __init__(self, tiers: Tiers, session: Session, place: Place, birth: bytes, ttl: float, wait: float) -> None:
        """`ttl`: seconds after which a holder that does not renew has lost it; `wait`: seconds to wait for another
        holder."""
        self._ttl = check_seconds("ttl", ttl, least=0.05, most=MAX_TTL)
        self._wait = check_seconds("wait", wait)
        self._tiers = tiers
        self._session = session
        self._place = place
        self._birth = birth
        self._token = b""
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Session:
        self._token = secrets.token_hex(8).encode()
        held = self._session.under_lease(self._token)
        try:
            await self._take()
            self._renewing = asyncio.ensure_future(self._renew())
            await held.refresh()  # the holder before may have written since
        except BaseException:  # cancelled, too: the lease may be ours by now, or be taken by a call under way
            await self._end()
            raise
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        """Give the lease back, also where the caller is cancelled meanwhile; wait for that as long as for any call."""
        renewing, self._renewing = self._renewing, None
        ending = self._tiers.leases.look_after(self._give_back(self._token, renewing))
        await asyncio.wait([ending], timeout=self._tiers.settings.timeout)

    async def _give_back(self, token: bytes, renewing: asyncio.Task[None] | None) -> None:
        """Give the lease back as soon as Redis can be reached; after `ttl` seconds it has expired by itself."""
        if renewing is not None:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        loop = asyncio.get_running_loop()
        over = loop.time() + self._ttl
        while True:
            try:
                return await self._tiers.perform(lambda: self._tiers.leases.free(self._place, self._birth, token))
            except (HotTierUnavailableError, DurableTierUnavailableError, DamagedValueError):
                if loop.time() >= over:
                    return None
            except ConfigurationError:  # the cache was closed
                return None
            await asyncio.sleep(_PAUSE)

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._wait
        while True:
            try:
                left = await self._tiers.perform(
                    lambda: self._tiers.leases.take(self._place, self._birth, self._token, self._ttl)
                )
            except Gone:
                raise self._session.gone() from None
            if left is None:
                return
            if loop.time() >= ends:
                raise LeaseUnavailableError(
                    f"another runner holds the lease of this session, for {left:.1f} s at least"
                )
            await asyncio.sleep(min(left, ends - loop.time(), random.uniform(_PAUSE / 2, _PAUSE)))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            try:
                held = await self._tiers.perform(
                    lambda: self._tiers.leases.renew(self._place, self._birth, self._token, self._ttl)
                )
            except (HotTierUnavailableError, DurableTierUnavailableError, DamagedValueError) as error:
                logger.warning("the run lease of a session could not be renewed, trying again: %s", error)
                continue
            except Gone:
                return
            if not held:
                logger.warning("the run lease of a session was lost: what is still written under it is refused")
                return
