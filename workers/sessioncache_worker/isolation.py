"""Isolation: one scope that cannot be committed holds no other up (R10).

A batch that failed with an error that may be of one scope is cut into parts, and these again, until what can be
committed is, and what cannot is alone.  A lone scope that fails is put off, each time for longer, and named in the log.
A scope of which the database refused something is tried alone for a while: in a batch it would fail the whole again.

All this happens beside the rounds of the worker, in *lanes*, each of which tries one part at a time.  What failed with
others, and is most likely sound, waits neither for the scopes of which something was refused, which may be many, nor
for those that cannot be committed, which may take a statement's time-out each, nor for what is larger than a batch.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sessioncache.durable.errors import RefusedDataError
from sessioncache.errors import DamagedValueError, DurableTierUnavailableError, SessionCacheError
from sessioncache.primitives.units import counted
from sessioncache_worker.claims import Claimed, HeldClaims

logger = logging.getLogger(__name__)

_PARTS = 8
_SAMPLE = 3
"""Lone scopes that are tried first: where none of them can be committed, nothing can, and the outage is not one
scope's."""
_MOST = 2_000
"""Scopes that wait here at most; any more are put off."""
_SOON = 1.0
"""Seconds after which what was put off or given up is due again."""
_LONGEST = 30.0
"""Seconds for which a scope is put off at most."""
_QUIET = 60.0
"""Seconds for which a cause is logged once."""
_FORGOTTEN = 4 * _LONGEST
"""Seconds after which a scope that did not come back is another worker's."""
_REFUSED_LATELY = 60.0
"""Seconds for which a scope is tried alone after the database refused something of it."""
_REFUSED_MOST = 20_000
"""Such scopes that are remembered at most, in a few MB."""


@dataclass(slots=True)
class Ailing:
    """A scope that could not be committed alone, or could not be read."""

    cause: str
    since: float
    """By the event loop's clock, as is the next field."""
    tried: float
    attempts: int = 1
    is_damaged: bool = False
    """Whether Redis holds something of it that cannot be read."""


class _Lane:
    """Parts that are tried one after the other."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[list[Claimed], bool]] = deque()
        self.busy: set[Claimed] = set()
        self.runner: asyncio.Future[None] | None = None

    @property
    def runs(self) -> bool:
        """Whether it is at work."""
        return self.runner is not None and not self.runner.done()


class Isolation:
    """Tries in parts what failed as a whole."""

    def __init__(self, flush: Callable[[Sequence[Claimed]], Awaitable[int]], held_claims: HeldClaims) -> None:
        """`flush` commits and acknowledges scopes together; a lone one without what the database refuses as data."""
        self._flush = flush
        self._holdings = held_claims
        self._of_failed, self._of_refused, self._of_ailing, self._of_large = (_Lane() for _ in range(4))
        self._lanes = (self._of_failed, self._of_refused, self._of_ailing, self._of_large)
        self._ailing: dict[Claimed, Ailing] = {}
        self._refused: dict[Claimed, float] = {}
        """When the database refused something of a scope, by the event loop's clock, the oldest first."""
        self._told: dict[str, float] = {}
        """When it was last logged that scopes cannot be flushed, by cause."""
        self.rows = 0
        """Rows that were flushed here."""
        self._error: Exception | None = None
        self._commits = 0

    # ---- what is known

    def knows(self, scope: Claimed) -> bool:
        """Whether a scope, or something of it, could not be committed lately."""
        return scope in self._ailing or self._was_refused(scope)

    def _was_refused(self, scope: Claimed) -> bool:
        when = self._refused.get(scope)
        return when is not None and asyncio.get_running_loop().time() - when < _REFUSED_LATELY

    def note_refusal(self, scope: Claimed) -> None:
        """Record that the database refused something of a scope as data."""
        # Removed first, so that the dict stays sorted by time.
        self._refused.pop(scope, None)
        self._refused[scope] = asyncio.get_running_loop().time()
        if len(self._refused) > _REFUSED_MOST:
            del self._refused[next(iter(self._refused))]

    def ailing(self) -> dict[Claimed, Ailing]:
        """The scopes that cannot be committed, those that have waited longest first."""
        now = asyncio.get_running_loop().time()
        for scope in [scope for scope, one in self._ailing.items() if now - one.tried > _FORGOTTEN]:
            del self._ailing[scope]
        return dict(sorted(self._ailing.items(), key=lambda item: item[1].since))

    def has(self, scope: Claimed) -> bool:
        """Whether a scope is waiting here, or being tried."""
        return any(scope in lane.busy for lane in self._lanes)

    def take_error(self) -> Exception | None:
        """The outage that ended a search, and that is not one scope's; returned once."""
        error, self._error = self._error, None
        return error

    def went_through(self) -> None:
        """Record that the database committed a batch: what fails now is no outage of the whole."""
        self._commits += 1

    # ---- what is tried

    async def look_into(self, scopes: Sequence[Claimed], *, known: bool = False) -> None:
        """Try scopes in parts; `known`: each of them alone, since it takes long, or could not be committed lately."""
        lanes: dict[_Lane, list[Claimed]] = {}
        for scope in self._holdings.of(scopes):
            lanes.setdefault(self._lane_of(scope) if known else self._of_failed, []).append(scope)
        for lane, of_lane in lanes.items():
            await self._enter(lane, of_lane, known=known)

    def _lane_of(self, scope: Claimed) -> _Lane:
        """The lane in which a scope is tried alone."""
        if scope in self._ailing:
            return self._of_ailing
        return self._of_refused if self._was_refused(scope) else self._of_large

    async def _enter(self, lane: _Lane, scopes: Sequence[Claimed], *, known: bool) -> None:
        room = max(0, _MOST - len(lane.busy))
        admitted, too_many = list(scopes[:room]), scopes[room:]
        if admitted:
            lane.busy.update(admitted)
            lane.jobs.append((admitted, known))
            if not lane.runs:
                lane.runner = asyncio.ensure_future(self._run(lane))
        if too_many:
            await self._holdings.put_off(too_many, _SOON)

    async def finished(self) -> None:
        """Wait until nothing is left to be tried."""
        while runners := {lane.runner for lane in self._lanes if lane.runner is not None and lane.runs}:
            await asyncio.wait(runners)

    def wind_down(self) -> None:
        """Do not try again what is known to be ailing."""
        self._of_ailing.jobs.clear()

    def stop(self) -> None:
        """Try nothing more."""
        for lane in self._lanes:
            lane.jobs.clear()
            if lane.runner is not None:
                lane.runner.cancel()

    async def _run(self, lane: _Lane) -> None:
        while lane.jobs:
            scopes, known = lane.jobs.popleft()
            try:
                await self._search(scopes, known=known)
            except Exception as error:  # the rounds of the worker raise it
                self._error = error
                await self._give_up(lane)
            lane.busy.difference_update(scopes)

    async def _give_up(self, lane: _Lane) -> None:
        """End a search: what it found would hold for the others as well."""
        lane.jobs.clear()
        left, lane.busy = self._holdings.of(lane.busy), set()
        with suppress(SessionCacheError):  # else they stay claimed until their lease is over
            await self._holdings.put_off(left, _SOON)

    async def _search(self, scopes: list[Claimed], *, known: bool) -> None:
        todo = deque(_alone(scopes) if known else _first_parts(scopes))
        sick: list[tuple[Claimed, str]] = []
        answered = known
        commits = self._commits
        while todo:
            part = todo.popleft()
            began = asyncio.get_running_loop().time()
            try:
                rows = await self._flush(part)
                self.rows += rows
                answered = answered or rows > 0
                self._recovered(part, began)
            except RefusedDataError:
                answered = True
                todo.extend(_parts(part))
            except DamagedValueError as error:
                if len(part) > 1:
                    todo.extend(_parts(part))
                else:
                    await self.set_apart(part[0], str(error), is_damaged=True)
            except DurableTierUnavailableError as error:
                # A batch that was committed meanwhile proves, too, that the database works for others.
                answered = answered or self._commits > commits
                if not error._partial or (not answered and len(sick) + 1 == _SAMPLE and todo):
                    raise
                if len(part) == 1:
                    sick.append((part[0], str(error)))
                else:
                    todo.extend(_parts(part))
        for scope, cause in sick:
            await self.set_apart(scope, cause)
        for cause in {cause for _, cause in sick}:
            self._tell(cause)

    async def set_apart(self, scope: Claimed, cause: str, *, is_damaged: bool = False) -> None:
        """Put off a scope that cannot be flushed, each time for longer, and log its name."""
        now = asyncio.get_running_loop().time()
        one = self._ailing.setdefault(scope, Ailing(cause, since=now, tried=now, attempts=0))
        one.cause, one.tried, one.attempts, one.is_damaged = cause, now, one.attempts + 1, is_damaged
        if one.attempts & (one.attempts - 1) == 0:  # the first time, and then ever more rarely
            level = logging.WARNING if is_damaged else logging.INFO  # a cause has a line of its own
            logger.log(level, "scope %s cannot be flushed, and is tried again: %s", scope[1], cause)
        # At random, so that scopes that failed together do not come back together.
        await self._holdings.put_off([scope], random.uniform(0.5, 1.0) * min(_LONGEST, 2.0**one.attempts))

    def _tell(self, cause: str) -> None:
        """Log one line for all scopes with a cause, and again while it lasts."""
        now = asyncio.get_running_loop().time()
        scopes = [scope for scope, one in self._ailing.items() if one.cause == cause]
        if not scopes or now < self._told.get(cause, -math.inf) + _QUIET:
            return
        self._told[cause] = now
        told = counted(len(scopes), "scope")
        logger.warning("%s cannot be flushed for now (such as %s): %s", told, scopes[0][1], cause)

    def _recovered(self, part: Sequence[Claimed], began: float) -> None:
        left = set(self._holdings.of(part))  # nothing of these was committed: they are read again
        for scope in part:
            one = self._ailing.get(scope)
            if one is not None and scope not in left and one.tried < began:  # else it was set apart just now
                del self._ailing[scope]
                seconds = asyncio.get_running_loop().time() - one.since
                logger.info("scope %s is flushed again, after %.0f s", scope[1], seconds)
                if not self._ailing:
                    self._told.clear()
                    logger.warning("no scope is left that could not be flushed")


def _first_parts(scopes: list[Claimed]) -> list[list[Claimed]]:
    """Some lone scopes, and the rest in parts."""
    # At random: the first ones could be just those that cannot be committed.
    shuffled = random.sample(scopes, len(scopes))
    return _alone(shuffled[:_SAMPLE]) + _parts(shuffled[_SAMPLE:])


def _parts(scopes: list[Claimed]) -> list[list[Claimed]]:
    size = -(-len(scopes) // _PARTS)
    return [scopes[at : at + size] for at in range(0, len(scopes), size)] if scopes else []


def _alone(scopes: Sequence[Claimed]) -> list[list[Claimed]]:
    return [[scope] for scope in scopes]
