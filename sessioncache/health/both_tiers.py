"""Judges what both tiers must agree on: layout, incarnations, clocks.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from sessioncache.health.finding import Finding, Level, bad, good, warning
from sessioncache.health.sql_facts import History
from sessioncache.hot.metrics import Incarnation
from sessioncache.primitives.ownership import INSTALLATION
from sessioncache.primitives.units import told_seconds

Record = Mapping[str, str]

_WEEK = 7 * 86_400.0
_APART, _FAR_APART = 1.0, 60.0
"""Seconds between two clocks."""
_REFUSED = "use the settings that it was set up with, or another prefix or database: caches and workers refuse to start"


def judge_layout(hot: Record | None, durable: Record | None, ours: Record) -> Finding:
    """Whether both tiers were set up with our limits, and for each other; None: that tier could not be asked."""
    if durable is not None:  # other rows of its table are not part of the record
        durable = {name: durable[name] for name in (*ours, INSTALLATION) if name in durable}
    records = {"Redis": hot, "the database": durable}
    for where, record in records.items():
        if different := [name for name in ours if record and name in record and record[name] != ours[name]]:
            told = ", ".join(f"{name} is {(record or {}).get(name)} there and {ours[name]} here" for name in different)
            return bad("layout", f"{where} was set up differently: {told}", _REFUSED)
    if hot and durable:
        if hot.get(INSTALLATION) != durable.get(INSTALLATION):
            advice = "give Redis a prefix of its own, or the database that it was used with"
            return bad("layout", "this Redis belongs to another database", advice)
        return good("layout", f"both tiers agree: {ours['buckets']} buckets, installation {hot.get(INSTALLATION)}")
    if hot is not None and durable is not None:
        return _half_recorded(hot, durable)
    known = next((where for where, record in records.items() if record), None)
    return good("layout", f"{known} agrees with this version" if known else "nothing is recorded yet")


def _half_recorded(hot: Record, durable: Record) -> Finding:
    if durable:
        found = "the database knows this installation, Redis does not: Redis is new, or has forgotten everything"
        return warning("layout", found, "nothing, if that was intended: the next cache or worker sets Redis up")
    if hot:
        found = "this Redis is in use with another database, and this one has no record of an installation"
        advice = "use the right database; if this one takes its place for good: `sessioncache db adopt`"
        return bad("layout", found, advice)
    return good("layout", "nothing is recorded yet: the first cache or worker does that")


def judge_buckets(hot: Mapping[int, Incarnation], fences: Mapping[int, str] | None) -> Finding:
    """Whether the database knows what each bucket's Redis remembers (R17); `fences` None: it could not be asked."""
    used = {bucket: one for bucket, one in hot.items() if one.id}
    told = f"{len(used)} of {len(hot)} buckets"
    if not used:
        return good("buckets", f"none of {len(hot)} is in use yet")
    if fences is not None:
        strange = sum(1 for bucket, one in used.items() if one.registered and fences.get(bucket) != one.id)
        if strange:
            found = f"the database names another incarnation than Redis for {strange} of them"
            advice = "does another Redis use this database?  After a restored backup: `sessioncache db restored`"
            return bad("buckets", f"{told} are in use; {found}", advice)
    if waiting := sum(1 for one in used.values() if not one.registered):
        found = f"{waiting} are not registered since Redis was restarted, or forgot something"
        return warning("buckets", f"{told} are in use; {found}", "nothing: a worker or the next call registers them")
    return good("buckets", f"{told} are in use, all registered")


def judge_incarnations(
    history: History,
    *,
    forgetful: int = 0,
    kept: bool = True,
    embedded: bool = False,
    restored_ago: float | None = None,
) -> Finding:
    """How often Redis may have forgotten something.

    `forgetful`: buckets of which it had lost something the last time.  `kept`: whether a restart keeps what it has.
    The embedded server starts anew for its first user each time.  `restored_ago`: seconds since everything hot was
    written again, which begins with new incarnations.
    """
    if not history.last_day:
        return good("incarnations", "no change within a day")
    found = (
        f"{history.last_hour} changes within an hour, {history.last_day} within a day (counted by bucket), "
        f"the last {told_seconds(history.since_last or 0.0)} ago"
    )
    if embedded:
        return good("incarnations", f"{found}: one for each start of the embedded server")
    since = history.since_last
    if not forgetful and restored_ago is not None and since is not None and since >= restored_ago - _APART:
        return good("incarnations", f"{found}: renewed by `db restored` {told_seconds(restored_ago)} ago")
    if kept and not forgetful:
        return good("incarnations", f"{found}: Redis was restarted, and nothing shows that it lost anything")
    if forgetful:
        found = f"{found}; {forgetful} buckets came back older, empty, or from a replica that was promoted"
    advice = "look for its cause: Redis was restarted, failed over or emptied, and what it lost before a flush is gone"
    return warning("incarnations", found, advice)


def judge_older(older: float, restored: float, now: float) -> Finding | None:
    """Whether SQL came back older than it was (R18), within a week; when, and when everything hot was marked since."""
    ago = now - older
    if not older or ago > _WEEK:
        return None
    found = (
        f"{told_seconds(ago)} ago it was found to have less than was flushed: a restored backup, or an older standby"
    )
    if restored < older:
        advice = "see that a worker runs: it has what is hot written again"
        return bad("restored", f"{found}; what Redis has is not written again yet", advice)
    advice = "look for its cause: what was newer and not hot is as old as the database"
    return warning("restored", f"{found}; what was hot is being written again", advice)


def judge_clocks(redis: float | None, database: float | None) -> Finding:
    """How far the clocks are from this machine's (seconds ahead); None: not asked."""
    offsets = {"Redis": redis, "the database": database}
    known = {name: offset for name, offset in offsets.items() if offset is not None}
    among = [0.0, *known.values()]
    apart = max(among) - min(among)
    if apart <= _APART:
        return good("clocks", f"within {max(apart, 0.001):.3f} s of each other")
    told = ", ".join(f"{name} is {told_seconds(abs(o))} {'ahead' if o > 0 else 'behind'}" for name, o in known.items())
    level = Level.BAD if apart > _FAR_APART else Level.WARNING
    advice = "keep all clocks together by NTP: times of sessions, leases and retention are measured by them"
    return Finding("clocks", level, f"compared with this machine, {told}", advice)
