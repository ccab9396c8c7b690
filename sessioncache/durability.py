"""flush(): waits for positive evidence that writes are durable (R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from sessioncache.deadline import apart, within
from sessioncache.entries import Entry
from sessioncache.errors import (
    DeadLetterError,
    DurableTierUnavailableError,
    FlushTimeoutError,
    HotTierUnavailableError,
    MemoryFullError,
    WriteLostError,
)
from sessioncache.hot.calls import Content, FlushState, Gone, Wanted
from sessioncache.hot.layout import Place
from sessioncache.hot.vitals import Vitals
from sessioncache.ledger import Ledger, Pending, fingerprint
from sessioncache.revisions import DIGITS, ZERO, decode_revision
from sessioncache.tiers import Tiers

if TYPE_CHECKING:
    from sessioncache.durable.reading import Evidence

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25
_AT_ONCE = 256
"""Scopes that are asked for in one round trip."""
_ASKING = 1.0
"""Seconds that asking for the cause of a time-out may take."""


async def flush(tiers: Tiers, ledgers: Iterable[Ledger], seconds: float) -> None:
    """Wait until everything in the ledgers is durable.

    Raises FlushTimeoutError, and WriteLostError where Redis forgot a write.
    """
    todo = [(ledger, pending) for ledger in ledgers for pending in ledger.pending()]
    loop = asyncio.get_running_loop()
    ends, pause, rounds = loop.time() + seconds, _FIRST_PAUSE, 0
    while True:
        todo = await _round(tiers, todo, patient=rounds % 4 != 3)
        if not todo:
            return
        if loop.time() + pause >= ends:
            raise FlushTimeoutError(await _why_late(tiers, len(todo), seconds))
        await asyncio.sleep(pause)
        pause, rounds = min(2 * pause, _LONGEST_PAUSE), rounds + 1


async def prune(tiers: Tiers, ledgers: Iterable[Ledger]) -> None:
    """Forget what is durable by now, without waiting for the rest or for a tier that is away."""
    todo = [(ledger, pending) for ledger in ledgers for pending in ledger.pending()]
    for at in range(0, len(todo), _AT_ONCE):
        part = todo[at : at + _AT_ONCE]
        with suppress(HotTierUnavailableError, DurableTierUnavailableError):
            for (ledger, pending), state in zip(part, await _states(tiers, part), strict=True):
                if pending.settled(state) or await _outlived(tiers, pending, state):
                    ledger.forget(pending)


async def _outlived(tiers: Tiers, pending: Pending, state: FlushState) -> bool:
    """Whether SQL shows the writes to a scope that Redis does not hold any more as it was when they were made."""
    if state.hash_incarnation == pending.incarnation:
        return False
    with suppress(WriteLostError):  # who flushes is told
        return await _shown_by_sql(tiers, pending, state, patient=False)
    return False


async def _round(tiers: Tiers, todo: list[tuple[Ledger, Pending]], *, patient: bool) -> list[tuple[Ledger, Pending]]:
    left: list[tuple[Ledger, Pending]] = []
    for at in range(0, len(todo), _AT_ONCE):
        part, done = todo[at : at + _AT_ONCE], at
        try:
            states = await _states(tiers, part)
            for (ledger, pending), state in zip(part, states, strict=True):
                _check_letters(pending, state)
                if await _durable(tiers, ledger, pending, state, patient=patient):
                    ledger.forget(pending)
                else:
                    left.append((ledger, pending))
                done += 1
        except (HotTierUnavailableError, DurableTierUnavailableError, MemoryFullError):
            return left + todo[done:]
    return left


async def _durable(tiers: Tiers, ledger: Ledger, pending: Pending, state: FlushState, *, patient: bool) -> bool:
    try:
        return pending.settled(state) or await _shown_by_sql(tiers, pending, state, patient=patient)
    except WriteLostError:
        ledger.forget(pending)  # it is told once; what is written from now on can be durable again
        raise


def _check_letters(pending: Pending, state: FlushState) -> None:
    keys = tuple(key for key, (revision, _) in pending.entries.items() if state.dead.get(key) == revision)
    if keys:
        raise DeadLetterError(
            f"the database refuses {len(keys)} values that were written: see `sessioncache dead list`", keys=keys
        )
    if state.headless and not pending.settled(state):
        told = "the database refuses the head (names, title, counters) of what was written, and nothing without it"
        raise DeadLetterError(f"{told}: see `sessioncache dead list`", keys=tuple(pending.entries))


async def _states(tiers: Tiers, part: list[tuple[Ledger, Pending]]) -> list[FlushState]:
    places = [pending.place for _, pending in part]
    return await tiers.perform(lambda: tiers.hot.flush_state(places))


async def _shown_by_sql(tiers: Tiers, pending: Pending, state: FlushState, *, patient: bool) -> bool:
    """Whether SQL shows the writes; raises WriteLostError where neither tier has them."""
    unchanged = state.incarnation == pending.incarnation
    if patient and unchanged and state.marks:
        return False
    marks = state.marks or await _marks_of_host(tiers, pending.place)
    with within(tiers.settings.timeout):
        ref, keys = pending.place.ref, list(pending.entries)
        evidence = await tiers.durable.evidence(ref, keys, oldest=bool(pending.whole))
    if _proves(pending, evidence, clean=unchanged and not state.marks):
        return True
    if unchanged and marks:
        return False
    await _check_still_hot(tiers, pending, marks)
    return False


async def _marks_of_host(tiers: Tiers, place: Place) -> int:
    """How much of the session of a namespace is to be flushed: with its tombstone the namespace is dead, too."""
    if not place.ref.holder:
        return 0
    host = tiers.layout.host(place, place.ref.holder)
    (state,) = await tiers.perform(lambda: tiers.hot.flush_state([host]))
    return state.marks


def _proves(pending: Pending, evidence: Evidence, *, clean: bool) -> bool:
    """A row at or above the writes will do while the fence names their incarnation; else it must show what was written.

    What was stamped anew, since SQL had forgotten it, has a later revision and the same text; what was deleted, is
    cleared.  To stamp anew clears what is older, whatever Redis forgot: then nothing else may live.
    """
    in_force = evidence.fence == pending.incarnation.decode()
    head = evidence.head
    cleared = head.cleared if head else 0
    whole = decode_revision(pending.whole or ZERO)
    is_cleared = cleared == whole or (cleared > whole and (in_force or evidence.oldest is None))
    if not is_cleared and not (in_force and _shows_clear(pending, evidence, clean=clean)):
        return False
    if pending.head:
        updated, touched = head.updated if head else 0, decode_revision(pending.head)
        if not (updated >= touched if in_force else updated == touched):
            return False
    if pending.life:
        life = decode_revision(pending.life)
        events = {head.birth, head.cleared} if head else set()
        gone = pending.gone and head is not None and head.deleted and cleared >= life
        if not (gone or (max(events, default=0) >= life if in_force else life in events)):
            return False
    for key, (digits, text) in pending.entries.items():
        revision, row = decode_revision(digits), evidence.rows.get(key)
        above = in_force and (cleared >= revision or (row is not None and row.revision >= revision))
        if not (above or _shows(row, cleared, revision, text)):
            return False
    return True


def _shows_clear(pending: Pending, evidence: Evidence, *, clean: bool) -> bool:
    """Whether nothing that was cleared lives in SQL; as long as the scope is dirty, some of it may be on its way."""
    whole = decode_revision(pending.whole)
    return evidence.head is not None and clean and (evidence.oldest is None or evidence.oldest > whole)


def _shows(row: Entry | None, cleared: int, revision: int, text: bytes) -> bool:
    """Whether SQL shows what was written of a key: the text, or that it is deleted."""
    if not text and cleared >= revision:
        return row is None or not row.text or row.revision <= cleared
    return row is not None and row.revision >= revision and fingerprint(row.text) == text


async def _check_still_hot(tiers: Tiers, pending: Pending, marks: int) -> None:
    """Raise WriteLostError unless the hot tier still holds exactly what was written.

    `marks`: what was dirty before SQL was asked, of the scope or of its session.
    """
    place = pending.place
    wanted = [Wanted(place, keys=None if pending.whole else list(pending.entries))]
    if place.ref.holder:  # a namespace can be read beside its session only
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


def _holds(content: Content, pending: Pending) -> bool:
    if content.incarnation != pending.incarnation and not _holds_clear(content, pending):
        return False
    if content.head.get(b"u", ZERO) < pending.head:
        return False
    entries = content.entries
    for key, (digits, text) in pending.entries.items():
        value = entries.get(key, b"")
        if text and (value[:DIGITS] < digits or fingerprint(value[DIGITS:]) != text):
            return False
        if not text and value:
            return False
    return not pending.life or pending.life == content.head.get(b"b", ZERO)


def _holds_clear(content: Content, pending: Pending) -> bool:
    """Whether it is that very clear, or nothing lives but what was written since: to stamp anew clears, too."""
    cleared = content.head.get(b"c", ZERO)
    if not pending.whole or cleared == pending.whole:
        return True
    return cleared > pending.whole and content.entries.keys() <= pending.entries.keys()


async def _why_late(tiers: Tiers, scopes: int, seconds: float) -> str:
    told = f"{scopes} scopes were not durable after {seconds:g} s; their changes are still waiting in Redis"
    try:
        with apart(_ASKING):
            alive = [one for one in await Vitals(tiers.link, tiers.layout).workers() if one.alive]
    except HotTierUnavailableError:
        return told + " (which cannot be reached)"
    if not alive:
        return told + ": no worker is alive, start sessioncache-worker"
    causes = [cause for one in alive for cause in (*one.away.values(), *(why for _, _, why in one.ailing))]
    return f"{told}: {causes[0]}" if causes else told
