"""Revalidation: what Redis still has of a scope and what SQL has are brought together (R17)."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from sessioncache.durable.answers import FencedOff
from sessioncache.hot.calls import TokenLost
from sessioncache.hot.layout import Place
from sessioncache.hot.merging import Merging
from sessioncache.registrar import Registrar

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_WAIT = 0.02
"""Most seconds between two looks at a scope that another process is at."""


class Revalidator:
    """Settles hashes of an older incarnation, and those that an acknowledgement flagged."""

    def __init__(self, merging: Merging, durable: DurableTier, registrar: Registrar) -> None:
        self._merging = merging
        self._durable = durable
        self._registrar = registrar

    async def revalidate(self, place: Place) -> None:
        """Make one attempt; returns also where another process is at work or was faster: the caller tries again."""
        taken = await self._merging.take_token(place)
        if taken is None:
            return
        if isinstance(taken, float):
            await asyncio.sleep(min(taken, random.uniform(_WAIT / 4, _WAIT)))
            return
        merged = False
        try:
            stored = await self._durable.read_everything(taken.place.ref, taken.incarnation)
            left = await self._merging.merge(taken, stored)
            merged = True
            logger.debug("revalidated scope %s: %d marks left", place.ref.id, left)
        except FencedOff as fenced:
            await self._registrar.register(fenced.buckets)
        except TokenLost:
            pass
        finally:
            if not merged:
                await self._merging.release(taken)
