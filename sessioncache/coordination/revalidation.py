"""Revalidation: a hash that Redis has of an older incarnation is compared with SQL before it is used again (R17).

Redis may have forgotten writes, or come back from an older file; the newer of each entry stays.  What is to be done is
decided by a pure function (`hot/reconciling.py`); this module fetches what it needs and carries it out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sessioncache.coordination.fencing import Fencing
from sessioncache.coordination.loading import Loadings, Progress
from sessioncache.durable.messages import FencedOff
from sessioncache.hot.backlog import Backlog
from sessioncache.hot.errors import damaged
from sessioncache.hot.incarnations import Current
from sessioncache.hot.layout import Place
from sessioncache.hot.merging import Merging, TakenScope
from sessioncache.hot.messages import Damaged
from sessioncache.hot.reconciling import Looked, Merged, MoreNeededError, reconcile, stamp_anew
from sessioncache.hot.signals import Need, Unready

if TYPE_CHECKING:
    from sessioncache.durable.tier import DurableTier

logger = logging.getLogger(__name__)

_WAIT = 0.02
"""Most seconds to wait before trying again where another process works on a scope."""
_AT_ONCE = 128
"""Scopes that are settled together: one reading of SQL, few round trips to Redis."""
_MOST = 16 * 1024 * 1024
"""Bytes of scopes that are settled together: they are held in memory, as SQL has them and as they become."""

_Job = tuple[TakenScope, Looked, Merged]
_Asked = tuple[TakenScope, Looked, int]
"""With the revision above which SQL is asked for its rows."""


class Revalidator:
    """Settles hashes of an older incarnation, and those that are marked for revalidation."""

    def __init__(self, merging: Merging, durable: DurableTier, fencing: Fencing, backlog: Backlog) -> None:
        self._merging = merging
        self._durable = durable
        self._fencing = fencing
        self._backlog = backlog
        self._loadings = Loadings()

    async def revalidate(self, place: Place) -> None:
        """Make one attempt; returns also where another process is at work or was faster: the caller tries again.

        Calls of this process that want the same scope wait for one attempt.  Unready where something else has to be
        made ready first, DamagedValueError where nothing can be done.
        """
        await self._loadings.share(place, lambda progress: self._revalidate(place, progress))

    async def aclose(self) -> None:
        """Cancel what is under way."""
        await self._loadings.aclose()

    async def _revalidate(self, place: Place, progress: Progress) -> None:
        taken: TakenScope | float | Unready | Damaged | int | None
        (taken,) = await self._merging.take_tokens([place])
        if isinstance(taken, TakenScope):
            taken = (await self._settle([taken], progress)).get(place.hash)
        elif isinstance(taken, float):
            # At random, or all that wait would try again at the same moment.
            await asyncio.sleep(min(taken, random.uniform(_WAIT / 4, _WAIT)))
        if isinstance(taken, Unready):
            raise taken
        if isinstance(taken, Damaged):
            # Another attempt would find the same damage: the caller must not try until its time is over.
            raise damaged(taken, [place.ref.member], place.ref.session)

    async def revalidate_all(self, places: Sequence[Place]) -> dict[bytes, Damaged]:
        """Make one attempt at each of many scopes; leaves out those that others work on, or that are not ready.

        Returns which (by their hashes) are damaged: they hold nothing else up.
        """
        found: dict[bytes, Damaged] = {}
        for at in range(0, len(places), _AT_ONCE):
            part = places[at : at + _AT_ONCE]
            taken = await self._merging.take_tokens(part)
            settled = await self._settle([one for one in taken if isinstance(one, TakenScope)], Progress())
            found |= {place.hash: one for place, one in zip(part, taken, strict=True) if isinstance(one, Damaged)}
            found |= {name: one for name, one in settled.items() if isinstance(one, Damaged)}
        return found

    async def stamp(
        self, places: Sequence[Place], renewed: Mapping[int, Current], marked: list[int]
    ) -> tuple[list[Place], list[tuple[Place, Place]]]:
        """Stamp what lives of scopes above all that SQL has.

        Returns those that are still to be done: those that others work on, and namespaces whose session is not hot,
        each with that session.  `renewed`: the new incarnation of each bucket.  Hashes of the one before are whole, if
        Redis had all of that one, and has forgotten nothing since: nothing is taken from SQL for them.  Others are
        revalidated first; those of the new one have been.
        The marks of each scope are added to `marked`; damaged scopes are left out.
        """
        left: list[Place] = []
        cold: list[tuple[Place, Place]] = []
        for at in range(0, len(places), _AT_ONCE):
            part = places[at : at + _AT_ONCE]
            taken = await self._merging.take_tokens(part)
            settled = await self._settle([one for one in taken if isinstance(one, TakenScope)], Progress(), renewed)
            marked += [marks for marks in settled.values() if isinstance(marks, int) and marks]
            for place, one in zip(part, taken, strict=True):
                outcome = settled.get(place.hash) if isinstance(one, TakenScope) else one
                if isinstance(outcome, Damaged):
                    logger.error("scope %s is not marked, since it is damaged: %s", place.ref.member, outcome.cause)
                elif isinstance(one, Unready) and one.need is Need.COLD:
                    cold.append((place, one.places[0]))
                elif one is not None and not isinstance(outcome, int):
                    left.append(place)
        return left, cold

    async def _settle(
        self, taken: Sequence[TakenScope], progress: Progress, renewed: Mapping[int, Current] | None = None
    ) -> dict[bytes, int | Damaged]:
        """Compare scopes with SQL, as many at once as are not too large, and settle them.

        Returns hash -> marks that are left of those that were settled, and which are damaged.
        """
        settled: dict[bytes, int | Damaged] = {}
        try:
            # R13: renewed also while SQL is read, so that a slow revalidation is not overtaken by the next one.
            with self._merging.kept(taken):
                for part in _fitting(taken):
                    await self._settle_part(part, progress, renewed, settled)
        # Some of these buckets have another incarnation in SQL: they are registered, and the callers try again.
        except FencedOff as fenced:
            with progress.asking_sql():
                await self._fencing.register(fenced.buckets)
        finally:
            # Tokens of what was not settled are given back, so that nobody has to wait for them to expire.
            unused = [one for one in taken if not isinstance(settled.get(one.place.hash), int)]
            if unused:
                await self._merging.release(unused)
        return settled

    async def _settle_part(
        self,
        taken: Sequence[TakenScope],
        progress: Progress,
        renewed: Mapping[int, Current] | None,
        settled: dict[bytes, int | Damaged],
    ) -> None:
        looks = dict(zip(taken, await self._merging.look(taken), strict=True))
        settled |= {one.place.hash: looked for one, looked in looks.items() if isinstance(looked, Damaged)}
        seen = [(one, looked) for one, looked in looks.items() if isinstance(looked, Looked)]
        jobs, asked = _whole_apart(seen, renewed)
        while jobs or asked:
            if asked:
                with progress.asking_sql():
                    more, asked = await self._reconciled(asked, anew=renewed is not None)
                jobs += more
            left = await self._merging.carry_out(jobs)
            done = [(job, marks) for job, marks in zip(jobs, left, strict=True) if marks is not None]
            settled |= {taken.place.hash: marks for (taken, _, _), marks in done}
            # What is stamped because SQL came back older need not be reported as that once more.
            if renewed is None:
                await self._report([made for (_, _, made), marks in done if isinstance(marks, int)])
            jobs = []

    async def _reconciled(self, asked: Sequence[_Asked], *, anew: bool) -> tuple[list[_Job], list[_Asked]]:
        """What is to be done to as many scopes as SQL answers at a time, and which are still to be asked about."""
        stored = await self._durable.read_changes(
            [(taken.place.ref, taken.incarnation, since) for taken, _, since in asked]
        )
        jobs: list[_Job] = []
        left = list(asked[len(stored) :])
        for (taken, seen, _), known in zip(asked, stored, strict=False):
            try:
                jobs.append((taken, seen, reconcile(taken.place.ref.kind, seen, known, anew=anew)))
            # Only newer rows were asked for, and they do not suffice: all rows of the scope are read.
            except MoreNeededError:
                left.append((taken, seen, 0))
        return jobs, left

    async def _report(self, made: Sequence[Merged]) -> None:
        forgotten = sum(one.forgot for one in made)
        if forgotten:
            await self._backlog.note_older()
            logger.error(
                "SQL has less than was flushed of %d scopes (a restored backup, or a standby that lagged): "
                "what Redis has of them is written again",
                forgotten,
            )


def _whole_apart(
    looked: Sequence[tuple[TakenScope, Looked]], renewed: Mapping[int, Current] | None
) -> tuple[list[_Job], list[_Asked]]:
    """What is to be done to hashes that are whole, and about which others SQL has to be asked."""
    jobs: list[_Job] = []
    asked: list[_Asked] = []
    for taken, seen in looked:
        now = renewed.get(taken.place.ref.bucket) if renewed else None
        # Under another incarnation than the renewed one Redis may have forgotten something since.
        if now and now.whole and taken.incarnation == now.id and seen.is_whole(now.whole):
            jobs.append((taken, seen, stamp_anew(taken.place.ref.kind, seen)))
        else:
            asked.append((taken, seen, seen.since))
    return jobs, asked


def _fitting(taken: Sequence[TakenScope]) -> Iterator[Sequence[TakenScope]]:
    """Scopes in parts of no more than `_MOST` bytes, or of one scope."""
    start = size = 0
    for place, one in enumerate(taken):
        if place > start and size + one.size > _MOST:
            yield taken[start:place]
            start, size = place, 0
        size += one.size
    if taken:
        yield taken[start:]
