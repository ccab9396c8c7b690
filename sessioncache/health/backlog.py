"""Judges the way to SQL: workers, age and number of what is dirty, dead letters.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessioncache.health.finding import Finding, bad, good, warning
from sessioncache.hot.metrics import WorkerSample
from sessioncache.primitives.units import told_seconds
from sessioncache.settings import CacheSettings, WorkerSettings

_SILENT = WorkerSettings().lease
"""Seconds after which a worker's claims go to others."""
_SLACK = 10.0
"""Seconds beyond the flush delay that a busy worker may be late."""
_RUN_WORKER = "run `sessioncache-worker`, under a supervisor that starts it again"
_OPEN_CACHE = "open a cache on the data folder: it sees to a worker"
_SEE_WORKERS = "see the workers' logs, and the database; run more workers where they are busy"


def judge_workers(workers: Sequence[WorkerSample], *, embedded: bool = False) -> Finding:
    """Whether somebody flushes."""
    advice = _OPEN_CACHE if embedded else _RUN_WORKER
    ages = sorted(one.age for one in workers)
    living = [one for one in workers if one.alive]
    if not ages:
        return bad("workers", "none runs: nothing is flushed", advice)
    if not living:
        return bad("workers", f"none is alive: the last heartbeat was {told_seconds(ages[0])} ago", advice)
    late = [age for age in ages if age > _SILENT]
    if len(late) == len(ages):
        advice = "find out whether it still runs; after half a minute of silence it counts as dead"
        return warning("workers", f"none was heard for {told_seconds(ages[0])}: it may be dead", advice)
    found = f"{len(ages) - len(late)} alive, the latest heartbeat {told_seconds(ages[0])} ago"
    if late:
        advice = "find out what became of them; a heartbeat is forgotten after an hour"
        return warning("workers", f"{found}; {len(late)} silent for up to {told_seconds(late[-1])}", advice)
    return good("workers", found)


def judge_flushing(workers: Sequence[WorkerSample], ailing: Mapping[str, str]) -> Finding:
    """What the workers report of their work; `ailing`: scopes that cannot be flushed, by name, and why."""
    living = [one for one in workers if one.alive]
    told = sorted({f"{tier} is away: {cause}" for one in living for tier, cause in one.away.items()})
    told += sorted({f"the {job} of {one.name} fails: {cause}" for one in living for job, cause in one.failing.items()})
    told += [f"{name} cannot be flushed: {cause}" for name, cause in ailing.items()]
    more = sum(one.ailing_in_all for one in living) - len(ailing)
    if not told:
        return good("flushing", "the workers report no problem")
    found = "; ".join(told) + (f"; and {more} scopes more" if ailing and more > 0 else "")
    return bad("flushing", found, "see to the cause: workers try again by themselves, and nothing is lost")


def judge_oldest(age: float | None, delay: float, settings: CacheSettings) -> Finding:
    """How long (seconds) the oldest dirty scope has been waiting; None: nothing is dirty."""
    if age is None:
        return good("oldest dirty", "nothing is dirty")
    found = f"{told_seconds(age)} old (flush delay {delay:g} s)"
    if age > settings.max_dirty_age / 2:
        return bad(
            "oldest dirty", f"{found}; writes are refused from {told_seconds(settings.max_dirty_age)}", _SEE_WORKERS
        )
    if age > delay + _SLACK:
        return warning("oldest dirty", found, _SEE_WORKERS)
    return good("oldest dirty", found)


def judge_dirty(scopes: int, settings: CacheSettings) -> Finding:
    """How many scopes wait for SQL."""
    found = f"{scopes:,} of at most {settings.max_dirty:,} scopes"
    if scopes >= settings.max_dirty:
        return bad("dirty", f"{found}: writes are refused", _SEE_WORKERS)
    if scopes > settings.max_dirty / 2:
        return warning("dirty", found, _SEE_WORKERS)
    return good("dirty", found)


def judge_letters(letters: int) -> Finding:
    """How many entries the database refuses."""
    if letters:
        advice = "see `sessioncache dead list`, then `dead retry` or `dead drop`"
        return bad("dead letters", f"{letters:,}: the database refuses them, only Redis has them", advice)
    return good("dead letters", "none")
