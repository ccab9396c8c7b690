"""Judges the Redis or Valkey server: version, eviction, persistence, memory.  Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from sessioncache.health.finding import Finding, bad, good, version_of, warning
from sessioncache.health.redis_facts import RedisFacts
from sessioncache.primitives.units import told_bytes

_OLDEST = {"Redis": (7, 0), "Valkey": (8, 0)}
_FULL, _NEARLY_FULL = 0.9, 0.75
_LOSES = "what Redis itself loses before it was flushed is gone"


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
