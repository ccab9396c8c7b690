"""Revalidation: what Redis still has of a scope and what SQL has are brought together (R17)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sessioncache.durable.answers import FencedOff
from sessioncache.entries import StoredScope
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.calls import Need, Unready
from sessioncache.hot.layout import Place
from sessioncache.hot.merging import Merging, Taken
from sessioncache.hot.reconciling import Looked, Merged, MoreNeededError, reconcile, stamp_anew
from sessioncache.loading import Loadings, Progress
from sessioncache.registrar import Registrar

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_WAIT = 0.02
"""Most seconds between two looks at a scope that another process is at."""
_AT_ONCE = 128
"""Scopes that are brought together at a time: one reading of SQL, few round trips to Redis."""


class Revalidator:
    """Settles hashes of an older incarnation, and those that were flagged."""

    def __init__(self, merging: Merging, durable: DurableTier, registrar: Registrar, backlog: Backlog) -> None:
        self._merging = merging
        self._durable = durable
        self._registrar = registrar
        self._backlog = backlog
        self._loadings = Loadings()

    async def revalidate(self, place: Place) -> None:
        """Make one attempt; returns also where another process is at work or was faster: the caller tries again.

        Calls of this process that want the same scope wait for one attempt.  Unready where something else has to be
        made ready first.
        """
        await self._loadings.share(place, lambda progress: self._revalidate(place, progress))

    async def aclose(self) -> None:
        """End what is under way."""
        await self._loadings.aclose()

    async def _revalidate(self, place: Place, progress: Progress) -> None:
        (taken,) = await self._merging.take_tokens([place])
        if isinstance(taken, Unready):
            raise taken
        if isinstance(taken, float):
            await asyncio.sleep(min(taken, random.uniform(_WAIT / 4, _WAIT)))
        elif taken is not None:
            await self._settle([taken], progress)

    async def revalidate_all(self, places: Sequence[Place]) -> None:
        """Make one attempt at each of many scopes; leaves out those that others are at, or that are not ready."""
        for at in range(0, len(places), _AT_ONCE):
            taken = await self._merging.take_tokens(places[at : at + _AT_ONCE])
            await self._settle([one for one in taken if isinstance(one, Taken)], Progress())

    async def stamp(
        self, places: Sequence[Place], before: Mapping[int, str], marked: list[int]
    ) -> tuple[list[Place], list[tuple[Place, Place]]]:
        """Stamp what lives of scopes above all that SQL has.

        Returns those that are still to be done: those that others are at, and namespaces whose session is not hot, each
        with that session.  `before`: the incarnation of each bucket until just now, of which the hashes are whole:
        nothing is taken from SQL for them.  What is of another one is revalidated first; what is of the new one has
        been.  The marks of each scope are added to `marked`.
        """
        left: list[Place] = []
        cold: list[tuple[Place, Place]] = []
        for at in range(0, len(places), _AT_ONCE):
            part = places[at : at + _AT_ONCE]
            taken = await self._merging.take_tokens(part)
            settled = await self._settle([one for one in taken if isinstance(one, Taken)], Progress(), before)
            marked += filter(None, settled.values())
            done = {token for token, marks in settled.items() if marks is not None}
            for place, one in zip(part, taken, strict=True):
                if isinstance(one, Unready) and one.need is Need.COLD:
                    cold.append((place, one.places[0]))
                elif one is not None and not (isinstance(one, Taken) and one.token in done):
                    left.append(place)
        return left, cold

    async def _settle(
        self, taken: Sequence[Taken], progress: Progress, before: Mapping[int, str] | None = None
    ) -> dict[bytes, int]:
        """Bring scopes together with what SQL has; token -> marks that are left of those that were settled."""
        settled: dict[bytes, int] = {}
        try:
            with self._merging.kept(taken):
                looks = await self._merging.look(taken)
                seen = [(one, looked) for one, looked in zip(taken, looks, strict=True) if looked]
                with progress.asking_sql():
                    jobs = await self._reconciled(seen, before)
                left = await self._merging.carry_out(jobs)
            settled = {job[0].token: marks for job, marks in zip(jobs, left, strict=True) if marks is not None}
            if before is None:
                await self._report([made for one, _, made in jobs if one.token in settled])
        except FencedOff as fenced:
            with progress.asking_sql():
                await self._registrar.register(fenced.buckets)
        finally:
            unused = [one for one in taken if one.token not in settled]
            if unused:
                await self._merging.release(unused)
        return settled

    async def _reconciled(
        self, looked: Sequence[tuple[Taken, Looked]], before: Mapping[int, str] | None
    ) -> list[tuple[Taken, Looked, Merged]]:
        jobs: list[tuple[Taken, Looked, Merged]] = []
        asked: list[tuple[Taken, Looked]] = []
        for taken, seen in looked:
            if before is not None and seen.is_whole(before.get(taken.place.ref.bucket, "")):
                jobs.append((taken, seen, stamp_anew(taken.place.ref.kind, seen)))
            else:
                asked.append((taken, seen))
        more: list[tuple[Taken, Looked]] = []
        stored = await self._read([(taken, seen.since) for taken, seen in asked])
        anew = before is not None
        for (taken, seen), known in zip(asked, stored, strict=True):
            try:
                jobs.append((taken, seen, reconcile(taken.place.ref.kind, seen, known, anew=anew)))
            except MoreNeededError:
                more.append((taken, seen))
        whole = await self._read([(taken, 0) for taken, _ in more])
        for (taken, seen), known in zip(more, whole, strict=True):
            jobs.append((taken, seen, reconcile(taken.place.ref.kind, seen, known, anew=anew)))
        return jobs

    async def _read(self, wanted: Sequence[tuple[Taken, int]]) -> list[StoredScope]:
        asked = [(taken.place.ref, taken.incarnation, since) for taken, since in wanted]
        return await self._durable.read_changes(asked) if asked else []

    async def _report(self, made: Sequence[Merged]) -> None:
        forgotten = sum(one.forgot for one in made)
        if forgotten:
            await self._backlog.note_older()
            logger.error(
                "SQL has less than was flushed of %d scopes (a restored backup, or a standby that lagged): "
                "what Redis has of them is written again",
                forgotten,
            )
