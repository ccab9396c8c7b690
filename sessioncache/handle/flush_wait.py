"""flush(): waits for positive evidence that writes are durable (R11).

Evidence is the flush watermark of the hot tier in the incarnation of the write, or what SQL's rows show.  That a scope
is no longer dirty is none: Redis may have forgotten both the write and its dirty mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sessioncache.coordination.tiers import Tiers
from sessioncache.durable.messages import Asked
from sessioncache.errors import (
    DeadLetterError,
    DurableTierUnavailableError,
    FlushTimeoutError,
    HotTierUnavailableError,
    MemoryFullError,
    WriteLostError,
)
from sessioncache.handle.unflushed_writes import Noted, UnflushedScope, UnflushedWrites, fingerprint
from sessioncache.hot.fields import Field
from sessioncache.hot.layout import Place
from sessioncache.hot.messages import Content, FlushState, Wanted
from sessioncache.hot.metrics import Metrics
from sessioncache.hot.signals import Gone
from sessioncache.primitives.deadline import apart, within
from sessioncache.primitives.entries import Entry
from sessioncache.primitives.revisions import DIGITS, ZERO, decode_revision

if TYPE_CHECKING:
    from sessioncache.durable.reading import Evidence

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25
_AT_ONCE = 256
"""Scopes that are asked about in one round trip."""
_ASKING = 1.0
"""Seconds that asking for the cause of a time-out may take."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """Writes to a scope that are not known to be durable, and what Redis reported last about the scope."""

    writes: UnflushedWrites
    pending: UnflushedScope
    state: FlushState = field(init=False)
    marks: int = 0
    """Dirty marks of the scope; for a namespace without any, those of its session."""
    is_over: bool = False
    """Whether they are known to be durable, or lost."""

    @property
    def is_unchanged(self) -> bool:
        """Whether Redis has forgotten nothing since the writes."""
        return self.state.incarnation == self.pending.incarnation

    def forget(self) -> None:
        """Remember these writes no longer."""
        self.writes.forget(self.pending)
        self.is_over = True


async def flush(tiers: Tiers, unflushed: Iterable[UnflushedWrites], seconds: float) -> None:
    """Wait until everything in these records of unflushed writes is durable.

    Raises FlushTimeoutError; DeadLetterError; WriteLostError where Redis forgot a write.
    """
    todo = _waiting(unflushed)
    loop = asyncio.get_running_loop()
    ends, pause, rounds = loop.time() + seconds, _FIRST_PAUSE, 0
    while True:
        # R8: the watermark stays below a dead letter, so what was written beside it is shown by SQL alone: three rounds
        # rely on Redis, the fourth asks SQL about everything.
        todo = await _round(tiers, todo, patient=rounds % 4 != 3)
        if not todo:
            return
        if loop.time() + pause >= ends:
            raise FlushTimeoutError(await _why_late(tiers, len(todo), seconds))
        await asyncio.sleep(pause)
        pause, rounds = min(2 * pause, _LONGEST_PAUSE), rounds + 1


async def prune(tiers: Tiers, unflushed: Iterable[UnflushedWrites]) -> None:
    """Forget what is durable by now, without waiting for the rest or for a tier that is away."""
    for part in _parts(_waiting(unflushed)):
        with suppress(HotTierUnavailableError, DurableTierUnavailableError):
            await _ask_redis(tiers, part)
            unsettled = _forget_settled(part)
            # Of what Redis does not hold any more as it was when it was written, SQL may show the writes.
            outlived = [one for one in unsettled if one.state.hash_incarnation != one.pending.incarnation]
            async for one, evidence in _evidence(tiers, outlived):
                with suppress(WriteLostError):  # a call of flush() reports it
                    await _judge(tiers, one, evidence)


def _waiting(unflushed: Iterable[UnflushedWrites]) -> list[_Waiting]:
    return [_Waiting(writes, pending) for writes in unflushed for pending in writes.pending()]


def _parts(todo: list[_Waiting]) -> Iterator[list[_Waiting]]:
    for at in range(0, len(todo), _AT_ONCE):
        yield todo[at : at + _AT_ONCE]


async def _round(tiers: Tiers, todo: list[_Waiting], *, patient: bool) -> list[_Waiting]:
    # An outage is waited out: whether there is time for that is for the caller to judge.
    with suppress(HotTierUnavailableError, DurableTierUnavailableError, MemoryFullError):
        for part in _parts(todo):
            await _settle(tiers, part, patient=patient)
    return [one for one in todo if not one.is_over]


async def _settle(tiers: Tiers, part: list[_Waiting], *, patient: bool) -> None:
    """Forget what is durable.  Raises WriteLostError where neither tier has a write."""
    await _ask_redis(tiers, part)
    for one in part:
        _check_letters(one.pending, one.state)
    # While its marks are there and Redis forgot nothing, a worker has yet to flush it: SQL need not be asked.
    asked = [one for one in _forget_settled(part) if not (patient and one.is_unchanged and one.state.marks)]
    async for one, evidence in _evidence(tiers, asked):
        try:
            await _judge(tiers, one, evidence)
        except WriteLostError:
            one.forget()  # reported once; what is written from now on can be durable again
            raise


async def _ask_redis(tiers: Tiers, part: list[_Waiting]) -> None:
    states = await _flush_states(tiers, [one.pending.place for one in part])
    for one, state in zip(part, states, strict=True):
        one.state, one.marks = state, state.marks


def _forget_settled(part: list[_Waiting]) -> list[_Waiting]:
    """Forget what the flush watermark has passed; the others."""
    for one in part:
        if one.pending.settled(one.state):
            one.forget()
    return [one for one in part if not one.is_over]


async def _flush_states(tiers: Tiers, places: list[Place]) -> list[FlushState]:
    return await tiers.perform(lambda: tiers.hot.flush_state(places)) if places else []


def _check_letters(pending: UnflushedScope, state: FlushState) -> None:
    # A newer write of the key, by whomever, has another revision, and may well be accepted.
    keys = tuple(key for key, noted in pending.entries.items() if state.dead.get(key) == noted.revision)
    if keys:
        raise DeadLetterError(
            f"the database refuses {len(keys)} values that were written: see `sessioncache dead list`", keys=keys
        )
    # What the watermark has passed is durable, whatever is refused of the head since.
    if state.headless and not pending.settled(state):
        told = "the database refuses the head (names, title, counters) of what was written, and nothing without it"
        raise DeadLetterError(f"{told}: see `sessioncache dead list`", keys=tuple(pending.entries))


async def _evidence(tiers: Tiers, asked: list[_Waiting]) -> AsyncIterator[tuple[_Waiting, Evidence]]:
    """What SQL knows of writes, of as many at a time as it answers at once."""
    await _add_marks_of_hosts(tiers, asked)
    while asked:
        wanted = [Asked(one.pending.place.ref, list(one.pending.entries), bool(one.pending.whole)) for one in asked]
        with within(tiers.settings.timeout):
            found = await tiers.durable.evidence(wanted)
        for one in zip(asked, found, strict=False):
            yield one
        asked = asked[len(found) :]


async def _add_marks_of_hosts(tiers: Tiers, asked: Iterable[_Waiting]) -> None:
    """Count the session's marks for a namespace without any: the session's tombstone, once flushed, ends the namespace
    too."""
    spaces = [one for one in asked if one.pending.place.ref.holder and not one.marks]
    hosts = [tiers.layout.host(one.pending.place, one.pending.place.ref.holder) for one in spaces]
    for one, state in zip(spaces, await _flush_states(tiers, hosts), strict=True):
        one.marks = state.marks


async def _judge(tiers: Tiers, one: _Waiting, evidence: Evidence) -> None:
    """Forget what SQL shows; raises WriteLostError where neither tier has it."""
    if _proves(one.pending, evidence):
        one.forget()
    # While Redis remembers the writes and their marks are there, SQL is only late: nothing is lost.
    elif not (one.is_unchanged and one.marks):
        await _check_still_hot(tiers, one.pending, one.marks)


def _proves(pending: UnflushedScope, evidence: Evidence) -> bool:
    """A row at or above the writes will do while the fence names their incarnation; else it must show what was written.

    A write that was stamped anew, since SQL had forgotten it, has a later revision and the same text; a deleted one is
    cleared.  That is no evidence for a write that built on an earlier value, such as an increment: another one that
    built on the same value, where Redis had lost this one, looks alike.  Stamping anew clears what is older, whatever
    Redis forgot: then nothing else may live.
    """
    in_force = evidence.fence == pending.incarnation.decode()
    head = evidence.head
    cleared = head.cleared if head else 0
    whole = decode_revision(pending.whole or ZERO)
    if not (cleared == whole or (cleared > whole and (in_force or evidence.oldest is None))):
        return False
    if pending.head:
        updated, touched = head.updated if head else 0, decode_revision(pending.head)
        # A write that followed the touch has set the time anew: its own revision stands for both.
        if not (updated >= touched if in_force else updated in (touched, decode_revision(pending.revision))):
            return False
    if pending.life:
        life = decode_revision(pending.life)
        events = {head.birth, head.cleared} if head else set()
        # A tombstone that was stamped anew has a later revision, and shows the delete all the same.
        gone = pending.gone and head is not None and head.deleted and cleared >= life
        if not (gone or (max(events, default=0) >= life if in_force else life in events)):
            return False
    for key, noted in pending.entries.items():
        revision, row = decode_revision(noted.revision), evidence.rows.get(key)
        above = in_force and (cleared >= revision or (row is not None and row.revision >= revision))
        if not (above or _shows(row, cleared, noted)):
            return False
    return True


def _shows(row: Entry | None, cleared: int, noted: Noted) -> bool:
    """Whether SQL shows what was written of a key: the text, or that it is deleted."""
    revision = decode_revision(noted.revision)
    if noted.exact:
        return row is not None and row.revision == revision and fingerprint(row.text) == noted.text
    # A clear leaves no tombstones of its keys: that no row of the key lives shows its delete.
    if not noted.text and cleared >= revision:
        return row is None or not row.text or row.revision <= cleared
    return row is not None and row.revision >= revision and fingerprint(row.text) == noted.text


async def _check_still_hot(tiers: Tiers, pending: UnflushedScope, marks: int) -> None:
    """Raise WriteLostError unless the hot tier still holds exactly what was written.

    `marks`: what was dirty before SQL was asked, of the scope or of its session.
    """
    place = pending.place
    # After a clear all keys: another one than those written since may live, which the clear would have ended.
    wanted = [Wanted(place, keys=None if pending.whole else list(pending.entries))]
    if place.ref.holder:  # a namespace can be read only together with its session
        wanted.insert(0, Wanted(tiers.layout.host(place, place.ref.holder), keys=[]))
    try:
        content = (await tiers.perform(lambda: tiers.hot.read(wanted)))[-1]
    except Gone:
        if marks:
            return  # the session's tombstone is still to be flushed
        content = None
    if content is None or not _holds(content, pending):
        raise WriteLostError(
            "Redis forgot what it knew before this write was durable, or it cannot be told any more whether the write "
            "survived: read the keys again",
            keys=tuple(pending.entries),
        )


def _holds(content: Content, pending: UnflushedScope) -> bool:
    forgot = content.incarnation != pending.incarnation
    if forgot and not (_holds_clear(content, pending) and _holds_touch(content, pending)):
        return False
    if not all(_holds_entry(content, key, noted, forgot=forgot) for key, noted in pending.entries.items()):
        return False
    return not pending.life or pending.life == content.head.get(Field.BIRTH, ZERO)


def _holds_touch(content: Content, pending: UnflushedScope) -> bool:
    """Whether the head is as it was after the touch, or after the latest write: a later head may lack the touch."""
    return not pending.head or content.head.get(Field.UPDATED, ZERO) in (pending.head, pending.revision)


def _holds_entry(content: Content, key: str, noted: Noted, *, forgot: bool) -> bool:
    if forgot and noted.exact:
        found = content.field(key)
        return found[:DIGITS] == noted.revision and fingerprint(found[DIGITS:]) == noted.text
    value = content.entries.get(key, b"")
    if not noted.text:
        return not value
    return value[:DIGITS] >= noted.revision and fingerprint(value[DIGITS:]) == noted.text


def _holds_clear(content: Content, pending: UnflushedScope) -> bool:
    """Whether it is that very clear, or nothing lives but what was written since: stamping anew clears, too."""
    cleared = content.head.get(Field.CLEARED, ZERO)
    if not pending.whole or cleared == pending.whole:
        return True
    return cleared > pending.whole and content.entries.keys() <= pending.entries.keys()


async def _why_late(tiers: Tiers, scopes: int, seconds: float) -> str:
    told = f"{scopes} scopes were not durable after {seconds:g} s; their changes are still waiting in Redis"
    try:
        with apart(_ASKING):
            alive = [one for one in await Metrics(tiers.link, tiers.layout).workers() if one.alive]
    except HotTierUnavailableError:
        return told + " (which cannot be reached)"
    if not alive:
        return told + ": no worker is alive, start sessioncache-worker"
    causes = [cause for one in alive for cause in (*one.away.values(), *(why for _, _, why in one.ailing))]
    return f"{told}: {causes[0]}" if causes else told
