"""Examines both tiers at once, each within a time of its own, and judges the facts.  Changes nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sessioncache.coordination.connecting import check_both
from sessioncache.coordination.installation import record_of
from sessioncache.durable.errors import LOGIN, NAME, POINTER, RIGHTS
from sessioncache.embedded import folder
from sessioncache.errors import ConfigurationError, DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.health.findings import (
    Finding,
    Report,
    bad,
    judge_buckets,
    judge_channels,
    judge_clocks,
    judge_database,
    judge_dirty,
    judge_eviction,
    judge_flushing,
    judge_incarnations,
    judge_layout,
    judge_letters,
    judge_memory,
    judge_older,
    judge_oldest,
    judge_persistence,
    judge_redis,
    judge_refusals,
    judge_rights,
    judge_schema,
    judge_workers,
)
from sessioncache.health.redis_facts import RedisFacts, read_redis, where_redis
from sessioncache.health.sql_facts import SqlFacts, read_sql, where_sql
from sessioncache.hot.client import HotClient
from sessioncache.primitives.deadline import within
from sessioncache.settings import CacheSettings

TIMEOUT = 5.0
"""Seconds for which a tier is waited for."""
_START = "start what uses it (an agent, `sessioncache demo`), or name your servers: --redis URL --database URL"
_SEE_REDIS = "see that Redis runs there, and that address, password and TLS of --redis are right"
_SEE_DATABASE = "see that the database runs there, and that address and TLS of --database are right"
_BY_CAUSE = {
    LOGIN: "see that user and password of --database are right, and that the server lets the role in (pg_hba.conf)",
    NAME: "create the database or role, or see that --database names the right ones",
    RIGHTS: "grant the role of --database what it lacks: CONNECT on the database, USAGE on the schema, and the tables",
}


@dataclass(frozen=True, slots=True)
class Targets:
    """The tiers of one installation: what is to be examined."""

    redis: str | None
    """URL; None: the embedded server does not run."""
    database: str
    embedded: str = ""
    """The data folder of the embedded default; empty for named servers."""


def find_targets(redis_url: str | None, database_url: str | None, data_dir: str) -> Targets:
    """The tiers behind URLs, or without any those in the data folder; ConfigurationError where one URL is missing."""
    if redis_url and database_url:
        return Targets(redis_url, database_url)
    check_both(redis_url, database_url)
    root = Path(data_dir).expanduser().resolve()
    socket = folder.find_socket(root)
    running = socket is not None and folder.answers(socket)
    return Targets(folder.redis_url(socket) if socket and running else None, folder.database_url(root), str(data_dir))


@dataclass(frozen=True, slots=True)
class Away:
    """A tier that cannot be examined."""

    finding: Finding


async def examine(targets: Targets, settings: CacheSettings, *, timeout: float = TIMEOUT) -> Report:
    """Both tiers, each waited for `timeout` seconds; one that is away is reported, and the other examined all the same.

    ConfigurationError for a URL that cannot be read or a driver that is not installed.
    """
    with within(timeout):
        hot, durable = await asyncio.gather(_read_hot(targets, settings), _read_durable(targets))
    findings = [*_of_redis(hot, targets), *_of_database(durable), *_of_both(hot, durable, targets, settings)]
    if isinstance(hot, RedisFacts):
        findings += _of_backlog(hot, targets, settings)
    findings = [replace(one, found=one.found.replace(POINTER, "")) for one in findings]
    return Report(findings, away=isinstance(hot, Away) or isinstance(durable, Away))


async def _read_hot(targets: Targets, settings: CacheSettings) -> RedisFacts | Away:
    if targets.redis is None:
        return Away(bad("redis", f"the embedded default in {targets.embedded} does not run", _START))
    link = HotClient.from_url(targets.redis, connect_timeout=TIMEOUT)
    try:
        return await read_redis(link, settings)
    except (HotTierUnavailableError, ConfigurationError) as error:
        return Away(bad("redis", f"{error} ({where_redis(link)})", _SEE_REDIS))
    finally:
        await link.aclose()


async def _read_durable(targets: Targets) -> SqlFacts | Away:
    where = where_sql(targets.database)
    try:
        return await read_sql(targets.database)
    except DurableTierUnavailableError as error:
        advice = _START if targets.embedded else _BY_CAUSE.get(error._cause, _SEE_DATABASE)
        return Away(bad("database", f"{error} ({where})", advice))


def _of_redis(hot: RedisFacts | Away, targets: Targets) -> list[Finding]:
    if isinstance(hot, Away):
        return [hot.finding]
    told = [judge(hot) for judge in (judge_redis, judge_eviction, judge_persistence)]
    return [*told, *judge_refusals(hot), *judge_channels(hot), judge_memory(hot, embedded=bool(targets.embedded))]


def _of_database(durable: SqlFacts | Away) -> list[Finding]:
    if isinstance(durable, Away):
        return [durable.finding]
    return [judge_database(durable), judge_rights(durable), judge_schema(durable)]


def _of_both(
    hot: RedisFacts | Away, durable: SqlFacts | Away, targets: Targets, settings: CacheSettings
) -> list[Finding]:
    redis = hot if isinstance(hot, RedisFacts) else None
    sql = durable if isinstance(durable, SqlFacts) else None
    if not redis and not sql:
        return []
    findings = [judge_layout(redis.record if redis else None, sql.layout if sql else None, record_of(settings))]
    if redis and redis.pulse:
        findings.append(judge_buckets(redis.pulse.incarnations, sql.fences if sql else None))
    if sql and sql.history:
        forgetful = sum(one.forgot for one in redis.pulse.incarnations.values()) if redis and redis.pulse else 0
        kept = not redis or redis.info.get("aof_enabled") == "1"
        embedded = bool(targets.embedded)
        ago = time.time() + (redis.offset or 0.0) - redis.restored if redis and redis.restored else None
        findings.append(
            judge_incarnations(sql.history, forgetful=forgetful, kept=kept, embedded=embedded, restored_ago=ago)
        )
    if redis and (older := judge_older(redis.older, redis.restored, time.time() + (redis.offset or 0.0))):
        findings.append(older)
    findings.append(judge_clocks(redis.offset if redis else None, sql.offset if sql else None))
    return findings


def _of_backlog(hot: RedisFacts, targets: Targets, settings: CacheSettings) -> list[Finding]:
    if hot.pulse is None:
        advice = "let the user of the URL run scripts and touch all keys that begin with the prefix"
        return [bad("workers", f"neither workers nor the backlog can be read: {hot.problem}", advice)]
    pulse = hot.pulse
    return [
        judge_workers(pulse.workers, embedded=bool(targets.embedded)),
        judge_flushing(pulse.workers, hot.ailing),
        judge_oldest(pulse.oldest_age, hot.delay, settings),
        judge_dirty(pulse.dirty_scopes, settings),
        judge_letters(pulse.dead_letters),
    ]
