"""What doctor finds: each fact about Redis, the database and the way between them is judged.  Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sessioncache.durable.schema import SCHEMA_REVISION
from sessioncache.health.redis_facts import RedisFacts
from sessioncache.health.sql_facts import History, SqlFacts
from sessioncache.hot.metrics import Incarnation, WorkerSample
from sessioncache.primitives.ownership import INSTALLATION
from sessioncache.primitives.units import told_bytes, told_seconds
from sessioncache.settings import CacheSettings, WorkerSettings

Record = Mapping[str, str]

_OLDEST = {"Redis": (7, 0), "Valkey": (8, 0), "PostgreSQL": (14,), "SQLite": (3, 40)}
_FULL, _NEARLY_FULL = 0.9, 0.75
_WEEK = 7 * 86_400.0
_APART, _FAR_APART = 1.0, 60.0
"""Seconds between two clocks."""
_SILENT = WorkerSettings().lease
"""Seconds after which a worker's claims go to others."""
_SLACK = 10.0
"""Seconds beyond the flush delay that a busy worker may be late."""
_LOSES = "what Redis itself loses before it was flushed is gone"
_UPGRADE = "run `sessioncache db upgrade`"
_REFUSED = "use the settings that it was set up with, or another prefix or database: caches and workers refuse to start"
_RUN_WORKER = "run `sessioncache-worker`, under a supervisor that starts it again"
_OPEN_CACHE = "open a cache on the data folder: it sees to a worker"
_SEE_WORKERS = "see the workers' logs, and the database; run more workers where they are busy"


class Level(StrEnum):
    """How one thing stands."""

    GOOD = "good"
    WARNING = "warning"
    """It works, and something may be lost or become bad."""
    BAD = "bad"
    """It does not work, or data is in danger now."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined."""

    name: str
    level: Level
    found: str
    advice: str = ""
    """What to do; empty where it is good."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found."""

    findings: Sequence[Finding]
    away: bool = False
    """Whether a tier is out of reach, so that the findings about it are missing."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is bad."""
        return all(one.level is not Level.BAD for one in self.findings)


def good(name: str, found: str) -> Finding:
    """A finding that needs nothing."""
    return Finding(name, Level.GOOD, found)


def warning(name: str, found: str, advice: str) -> Finding:
    """A finding that deserves attention."""
    return Finding(name, Level.WARNING, found, advice)


def bad(name: str, found: str, advice: str) -> Finding:
    """A finding that needs action."""
    return Finding(name, Level.BAD, found, advice)


def version_of(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with, to be compared."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found.group().split("."))) if found else ()


# ---- the Redis or Valkey server


def judge_redis(facts: RedisFacts) -> Finding:
    """Kind and version of the server, and whether it takes writes."""
    kind, version = _kind(facts.info)
    where = f"at {facts.where}"
    if not facts.info:
        return warning("redis", f"{where}: its version is unknown, INFO is refused", "allow the user of the URL +info")
    if version_of(version) < _OLDEST[kind]:
        return bad("redis", f"{kind} {version} {where} is too old", "use Redis 7.0 or Valkey 8, or later")
    if facts.info.get("role") == "slave":
        return bad("redis", f"{kind} {version} {where} is a replica: it takes no writes", "use the primary's URL")
    return good("redis", f"{kind} {version} {where}")


def _kind(info: Mapping[str, str]) -> tuple[str, str]:
    if "valkey_version" in info:
        return "Valkey", info["valkey_version"]
    return "Redis", info.get("redis_version", "")


def judge_refusals(facts: RedisFacts) -> list[Finding]:
    """Why the server refuses whatever writes, if it does."""
    info, config = facts.info, facts.config
    why = []
    if info.get("aof_last_write_status", "ok") != "ok":
        why.append(("the append-only file cannot be written", "see the server's log, and make room on its disk"))
    # Without points in time at which it is to save, a snapshot that failed stops nothing.
    stops = config.get("stop-writes-on-bgsave-error") != "no" and config.get("save") != ""
    if stops and info.get("rdb_last_bgsave_status", "ok") != "ok":
        advice = "see the server's log, make room on its disk, and BGSAVE; or CONFIG SET stop-writes-on-bgsave-error no"
        why.append(("the last snapshot failed (MISCONF)", advice))
    wanted = int(config.get("min-replicas-to-write", "1"))
    # The server reports them only where some are asked for.
    if (_number(info, "min_slaves_good_slaves") or 0) < wanted and "min_slaves_good_slaves" in info:
        found = f"{info['min_slaves_good_slaves']} of {wanted} replicas follow it (NOREPLICAS)"
        why.append((found, "start the replicas again, or lower min-replicas-to-write"))
    return [bad("writes", f"refused: {found}; what is hot can be read", advice) for found, advice in why]


def judge_channels(facts: RedisFacts) -> list[Finding]:
    """Whether the user of the URL may use our channels, if not."""
    if not facts.without_channels:
        return []
    found = "the user of the URL may not use them: `watch()` is refused, and workers find new writes at their next poll"
    return [warning("channels", found, f"ACL SETUSER … &{facts.without_channels}:*")]


def judge_eviction(facts: RedisFacts) -> Finding:
    """What Redis drops when its memory is full: never what SQL lacks (R15)."""
    policy = facts.info.get("maxmemory_policy") or facts.config.get("maxmemory-policy")
    if not policy:
        return warning(
            "eviction",
            "the policy is unknown: neither INFO nor CONFIG shows it",
            "see that it is noeviction or volatile-*",
        )
    if policy.startswith("allkeys"):
        advice = "CONFIG SET maxmemory-policy volatile-lru (or noeviction), and the same in the server's configuration"
        return bad("eviction", f"{policy} drops what the database lacks", advice)
    return good("eviction", f"{policy} never drops what the database lacks")


def judge_persistence(facts: RedisFacts) -> Finding:
    """Whether a restart of Redis loses what was not flushed yet."""
    info, fsync = facts.info, facts.config.get("appendfsync")
    if "aof_enabled" not in info:
        return warning("persistence", "it is unknown: INFO does not show it", "see that the append-only file is on")
    if failed := _failed(info):
        return bad("persistence", f"the last {failed} failed", "see the server's log: disk full, or no right to write?")
    if info["aof_enabled"] != "1":
        return _without_log(facts.config)
    if fsync == "no":
        found = f"append-only file, written when the system likes: at a power failure {_LOSES}"
        return warning("persistence", found, "CONFIG SET appendfsync everysec")
    return good("persistence", f"append-only file, fsync {fsync or 'unknown (CONFIG is refused)'}")


def _failed(info: Mapping[str, str]) -> str:
    fields = {"rdb_last_bgsave_status": "snapshot"}
    if info["aof_enabled"] == "1":
        fields = {
            "aof_last_write_status": "write of the append-only file",
            "aof_last_bgrewrite_status": "rewrite of the append-only file",
        } | fields
    return next((what for field, what in fields.items() if info.get(field, "ok") != "ok"), "")


def _without_log(config: Mapping[str, str]) -> Finding:
    found = {None: "no append-only file", "": "neither append-only file nor snapshots"}
    told = found.get(config.get("save"), "snapshots only, no append-only file")
    advice = "CONFIG SET appendonly yes appendfsync everysec, and the same in the server's configuration"
    return warning("persistence", f"{told}: at a restart {_LOSES}", advice)


def judge_memory(facts: RedisFacts, *, embedded: bool = False) -> Finding:
    """How much of its memory Redis uses."""
    used, most = (_number(facts.info, name) for name in ("used_memory", "maxmemory"))
    if used is None:
        return warning(
            "memory", "it is unknown: INFO does not show it", "see that maxmemory is set, and far from reached"
        )
    if not most and embedded:
        return good("memory", f"{told_bytes(used)} used; the embedded server has no limit")
    if not most:
        found = f"{told_bytes(used)} used, without a limit: the system may end Redis when its own memory is full"
        return warning("memory", found, "CONFIG SET maxmemory to what the machine can spare")
    share = used / most
    found = f"{told_bytes(used)} of {told_bytes(most)} used ({share:.0%})"
    if share > _NEARLY_FULL:
        advice = "raise maxmemory, or lower the caches' idle_ttl; when it is full, writes are refused"
        return bad("memory", found, advice) if share > _FULL else warning("memory", found, advice)
    return good("memory", found)


def _number(info: Mapping[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isdigit() else None


# ---- the SQL database


def judge_database(facts: SqlFacts) -> Finding:
    """Kind and version of the database, and whether it takes what is flushed."""
    found = f"{facts.kind} {facts.version} at {facts.where}"
    if version_of(facts.version) < (oldest := _OLDEST[facts.kind]):
        return bad("database", f"{found} is too old", f"use {facts.kind} {'.'.join(map(str, oldest))} or later")
    if facts.standby:
        return bad("database", f"{found} is a standby: it takes no writes", "use the primary's URL")
    if facts.read_only:
        advice = "nothing, if that is intended: workers go on when it ends; else see default_transaction_read_only"
        return bad("database", f"{found} is set read-only: nothing is flushed", advice)
    if facts.encoding != "UTF8":
        return bad("database", f"{found} has encoding {facts.encoding}", "use a database created with ENCODING 'UTF8'")
    return good("database", f"{found}, driver {facts.driver}")


def judge_rights(facts: SqlFacts) -> Finding:
    """Whether the role of the URL may do what agents and workers do."""
    if not facts.missing_rights:
        return good("rights", "all that agents and workers need")
    told = ", ".join(facts.missing_rights)
    return bad("rights", f"the role of the URL lacks: {told}", "grant them; workers try again by themselves")


def judge_schema(facts: SqlFacts) -> Finding:
    """Whether the schema is the one that this version needs."""
    found = facts.revision
    if found == SCHEMA_REVISION:
        return good("schema", f"{found}, up to date")
    if found is None and any(one.startswith(("USAGE on schema", "SELECT on")) for one in facts.missing_rights):
        return bad("schema", "the role of the URL may not read it", "grant it what it lacks")
    if found is None:
        return bad("schema", "the database has no sessioncache schema", _UPGRADE)
    if found > SCHEMA_REVISION:
        advice = "install the version of sessioncache that upgraded it, or a later one"
        return bad("schema", f"{found} is newer than {SCHEMA_REVISION}, which this version knows", advice)
    return bad("schema", f"{found} is behind {SCHEMA_REVISION}", _UPGRADE)


# ---- what both tiers must agree on


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


# ---- the way to SQL: workers, and what waits for them


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
