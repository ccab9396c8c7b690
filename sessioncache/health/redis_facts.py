"""Facts about a Redis server and our installation in it.  Reading them changes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from sessioncache.errors import HotTierUnavailableError
from sessioncache.hot.client import Argument, HotClient, Reply, pairs_of, parse_info
from sessioncache.hot.errors import forbidden_by, is_repeatable
from sessioncache.hot.keyspace import Keyspace, Names
from sessioncache.hot.layout import Layout
from sessioncache.hot.metrics import Metrics, Sample, WorkerSample
from sessioncache.settings import CacheSettings, WorkerSettings

_SECTIONS = ("server", "memory", "persistence", "replication")
_CONFIG = ("appendfsync", "save", "maxmemory-policy", "stop-writes-on-bgsave-error", "min-replicas-to-write")


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """One Redis; what its user may not ask is empty."""

    where: str
    info: Mapping[str, str]
    config: Mapping[str, str]
    record: Mapping[str, str]
    """What this Redis was set up with."""
    offset: float | None = None
    """Seconds that its clock is ahead of this machine's."""
    delay: float = WorkerSettings().flush_delay
    """The workers' flush delay in seconds."""
    without_channels: str = ""
    """The prefix of our channels, where the user may not use them."""
    older: float = 0.0
    """When SQL was found to have less than was flushed, by the clock of Redis; 0: never."""
    restored: float = 0.0
    """When everything hot was marked again since."""
    pulse: Sample | None = None
    """None where our scripts cannot run; `problem` says why."""
    problem: str = ""
    ailing: Mapping[str, str] = field(default_factory=dict)
    """Scopes that workers cannot flush, by name, and why."""


async def read_redis(link: HotClient, settings: CacheSettings) -> RedisFacts:
    """The facts; HotTierUnavailableError, ConfigurationError (wrong password)."""
    layout = Layout(settings.prefix, settings.buckets)
    began = time.time()
    replies = await link.exchange(_commands(layout), {})
    published, *replies = replies
    clock, record, noted, *rest = (None if isinstance(reply, Exception) else reply for reply in replies)
    info, config = rest[: len(_SECTIONS)], rest[len(_SECTIONS) :]
    recorded = _texts(record)
    delay, older, restored = noted or (None, None, None)
    layout = _recorded_layout(layout, recorded)
    pulse, problem = await _read_pulse(link, layout)
    return RedisFacts(
        where=where_redis(link),
        info={name: value for section in info if section for name, value in parse_info(section).items()},
        config={name: value for part in config for name, value in _texts(part).items()},
        record=recorded,
        offset=None if clock is None else _offset(clock, began, time.time()),
        delay=int(delay) / 1_000_000 if delay else WorkerSettings().flush_delay,
        without_channels=settings.prefix if isinstance(published, ResponseError) and forbidden_by(published) else "",
        older=int(older or 0) / 1_000_000,
        restored=int(restored or 0) / 1_000_000,
        pulse=pulse,
        problem=problem,
        ailing=await _read_ailing(link, layout, pulse.workers) if pulse else {},
    )


def where_redis(link: HotClient) -> str:
    """Where the server is, without user and password."""
    given: Mapping[str, Any] = link.client.connection_pool.connection_kwargs
    place = given.get("path") or f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"
    return f"{place} (database {given['db']})" if given.get("db") else str(place)


def _commands(layout: Layout) -> Sequence[Sequence[Argument]]:
    return [
        (b"PUBLISH", b"%b:doctor" % layout.prefix.encode(), b""),  # nobody listens to this channel
        (b"TIME",),
        (b"HGETALL", layout.record),
        (b"HMGET", layout.control(0), b"delay", b"older", b"restored"),
        *((b"INFO", section) for section in _SECTIONS),
        *((b"CONFIG", b"GET", name) for name in _CONFIG),
    ]


def _recorded_layout(layout: Layout, record: Mapping[str, str]) -> Layout:
    """With the number of buckets that there are, whatever we would have."""
    buckets = record.get("buckets", "")
    return Layout(layout.prefix, int(buckets)) if buckets.isdigit() else layout


async def _read_pulse(link: HotClient, layout: Layout) -> tuple[Sample | None, str]:
    try:
        return await Metrics(link, layout).read(), ""
    except HotTierUnavailableError as error:
        if is_repeatable(error):
            raise
        return None, str(error)


async def _read_ailing(link: HotClient, layout: Layout, workers: Sequence[WorkerSample]) -> dict[str, str]:
    """What living workers cannot flush, by the names in the scopes' hashes."""
    told = {(bucket, member): cause for one in workers if one.alive for bucket, member, cause in one.ailing}
    found = await Keyspace(link, layout).names(list(told))
    return {_named(member, names): cause for ((_, member), cause), names in zip(told.items(), found, strict=True)}


def _named(member: str, names: Names | None) -> str:
    if names is None:
        return f"scope {member}"
    owner = f"user {names.user!r} in app {names.app!r}"
    kinds = {"a": f"the scope of app {names.app!r}", "u": f"the scope of {owner}"}
    named = f"session {names.session!r} of {owner}"
    return kinds.get(member[0], f"namespace {names.namespace!r} of {named}" if names.namespace else named)


def _offset(clock: Reply, began: float, ended: float) -> float:
    """Seconds by which a clock is ahead; 0 where the way to it may explain the difference."""
    told = int(clock[0]) + int(clock[1]) / 1_000_000
    return told - min(max(told, began), ended)


def _texts(reply: Reply) -> dict[str, str]:
    """Names and values as texts; none of what was refused."""
    return {name.decode(): value.decode("utf-8", "replace") for name, value in pairs_of(reply or {}).items()}
