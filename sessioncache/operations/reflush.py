"""Reflush: after SQL came back older (a restored backup, a standby that lagged) everything hot is flushed again (R18).

To *stamp* a scope is to write everything that lives in it anew at one revision above all that SQL has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sessioncache.coordination.tiers import Tiers
from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.incarnations import Current
from sessioncache.hot.layout import Place
from sessioncache.hot.signals import Gone, Unready
from sessioncache.primitives.deadline import within
from sessioncache.primitives.revisions import LARGEST
from sessioncache.primitives.scopes import ScopeKind

logger = logging.getLogger(__name__)

_TURN, _A_TURN = "restore", 60.0
"""The process that stamps everything takes the turn again and again for so many seconds; if it is killed, another takes
over."""
_ROUNDS = 20
_PAUSE = 0.1
"""Seconds between two rounds over scopes that others were working on."""
_SETTLING = 30.0
"""Seconds that some hundred scopes may take."""


@dataclass(frozen=True, slots=True)
class Remarked:
    """How much was marked."""

    scopes: int
    entries: int


async def remark_everything(tiers: Tiers) -> Remarked:
    """Stamp everything that lives hot above all that SQL has, and mark it as dirty.

    Every bucket gets a new incarnation first: then nothing that was flushed to the database before counts as evidence
    any more, and nobody installs what was read of it.  Where Redis may have forgotten something, too, the hashes are
    not whole, and are revalidated.
    """
    with within(60):
        renewed = await tiers.fencing.renew(range(tiers.settings.buckets))
    left: list[Place] = []
    marked: list[int] = []
    async for page in hot_pages(tiers):
        with within(tiers.settings.timeout):
            await tiers.backlog.take_turn(_TURN, _A_TURN, again=True)
        places = [tiers.backlog.place(*scope) for scope in page]
        left += await _stamp(tiers, places, renewed, marked)
    for _ in range(_ROUNDS):  # others were working on them, or a namespace came before its session
        if not left:
            break
        await asyncio.sleep(_PAUSE)
        left = await _stamp(tiers, left, renewed, marked)
    if left:
        told = f"{len(left)} hot scopes could not be marked, since others kept changing them"
        raise HotTierUnavailableError(f"{told} (the first: {left[0].ref.member}): run it again")
    with within(tiers.settings.timeout):
        await tiers.backlog.note_restored()
    return Remarked(len(marked), sum(marked))


async def restore_if_older(tiers: Tiers) -> Remarked | None:
    """Do so if SQL was found to have less than was flushed, and no other process has the turn; what was marked."""
    with within(tiers.settings.timeout):
        if not await tiers.backlog.is_older() or not await tiers.backlog.take_turn(_TURN, _A_TURN):
            return None
    return await remark_everything(tiers)


async def _stamp(
    tiers: Tiers, places: Sequence[Place], renewed: Mapping[int, Current], marked: list[int]
) -> list[Place]:
    """Stamp scopes, sessions before their namespaces; those that are left.

    A namespace needs its session hot, which may have been evicted: it is loaded, and both are done in the next round.
    """
    left: list[Place] = []
    for spaces in (False, True):
        part = [place for place in places if (place.ref.kind is ScopeKind.NAMESPACE) is spaces]
        with within(_SETTLING):
            busy, cold = await tiers.revalidator.stamp(part, renewed, marked)
            left += busy
            for place, host in cold:
                left += await _with_session(tiers, place, host)
    return left


async def _with_session(tiers: Tiers, place: Place, host: Place) -> list[Place]:
    """A namespace and its session, once that is hot; neither where the session is in neither tier."""
    try:
        with suppress(Unready):  # what comes up meanwhile is met by the next round
            await tiers.hydrator.hydrate([host])
    except Gone:
        logger.error("the session of the namespace %s is in neither tier: it is dropped", place.ref.member)
        await tiers.backlog.scrub(place, LARGEST)
        return []
    return [host, place]


async def hot_scopes(tiers: Tiers, bucket: int | None = None) -> AsyncIterator[tuple[int, str]]:
    """Bucket and member of every scope that is hot (in one bucket); each that stays hot comes at least once."""
    async for page in hot_pages(tiers, bucket):
        for scope in page:
            yield scope


async def hot_pages(tiers: Tiers, bucket: int | None = None) -> AsyncIterator[list[tuple[int, str]]]:
    """As `hot_scopes`, in the pages of a scan of 500 keys each; a page is empty where all of these are something
    else."""
    cursor = b"0"
    while True:
        with within(tiers.settings.timeout):
            cursor, page = await tiers.keyspace.scopes(bucket, cursor)
        yield page
        if cursor == b"0":
            return
