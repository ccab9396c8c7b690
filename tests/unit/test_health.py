"""What an examination makes of what it found; no servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from sessioncache.durable.migrate import head_revision
from sessioncache.health.findings import (
    Level,
    Report,
    bad,
    good,
    judge_buckets,
    judge_clocks,
    judge_database,
    judge_dirty,
    judge_eviction,
    judge_incarnations,
    judge_layout,
    judge_letters,
    judge_memory,
    judge_older,
    judge_oldest,
    judge_persistence,
    judge_redis,
    judge_refusals,
    judge_schema,
    judge_workers,
    version_of,
    warning,
)
from sessioncache.health.redis_facts import RedisFacts
from sessioncache.health.sql_facts import History, SqlFacts, summed
from sessioncache.hot.metrics import Incarnation, WorkerSample
from sessioncache.settings import CacheSettings

GOOD, WARNING, BAD = Level.GOOD, Level.WARNING, Level.BAD
SETTINGS = CacheSettings()
OURS = {"layout": "1", "buckets": "256"}
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def of_redis(info: Mapping[str, object], **config: str) -> RedisFacts:
    """A server that tells this."""
    told = {name: str(value) for name, value in info.items()}
    return RedisFacts("host:6379", told, {name.replace("_", "-"): value for name, value in config.items()}, {})


_HEAD = head_revision()


def of_sql(kind: str = "PostgreSQL", version: str = "15.1", revision: str | None = _HEAD, **more: object) -> SqlFacts:
    """A database that tells this."""
    return SqlFacts("host/name", kind, version, "driver 1", revision, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"redis_version": "7.0.15"}, GOOD),
        ({"redis_version": "8.2.1", "role": "master"}, GOOD),
        ({"redis_version": "6.2.19"}, BAD),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, GOOD),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.11"}, BAD),
        ({"redis_version": "7.0.15", "role": "slave"}, BAD),
        ({}, WARNING),
    ],
)
def test_servers_that_are_too_old_or_take_no_writes_are_bad(info: Mapping[str, str], level: Level) -> None:
    assert judge_redis(of_redis(info)).level is level


@pytest.mark.parametrize(
    ("info", "config", "told"),
    [
        ({}, {}, []),
        ({"rdb_last_bgsave_status": "ok", "min_slaves_good_slaves": 2}, {"min_replicas_to_write": "2"}, []),
        ({"rdb_last_bgsave_status": "err"}, {"stop_writes_on_bgsave_error": "yes", "save": "3600 1"}, ["MISCONF"]),
        ({"rdb_last_bgsave_status": "err"}, {}, ["MISCONF"]),
        ({"rdb_last_bgsave_status": "err"}, {"stop_writes_on_bgsave_error": "no", "save": "3600 1"}, []),
        ({"rdb_last_bgsave_status": "err"}, {"save": ""}, []),
        ({"aof_last_write_status": "err"}, {}, ["append-only"]),
        ({"min_slaves_good_slaves": 1}, {"min_replicas_to_write": "2"}, ["1 of 2 replicas"]),
        ({"min_slaves_good_slaves": 0}, {}, ["0 of 1 replicas"]),
    ],
)
def test_what_stops_all_writes_is_named(
    info: Mapping[str, object], config: Mapping[str, str], told: Sequence[str]
) -> None:
    findings = judge_refusals(of_redis(info, **config))
    assert [one.level for one in findings] == [BAD] * len(told)
    assert all(word in one.found for word, one in zip(told, findings, strict=True))


@pytest.mark.parametrize(
    ("policy", "level"),
    [("noeviction", GOOD), ("volatile-lru", GOOD), ("volatile-ttl", GOOD), ("allkeys-lru", BAD), ("allkeys-lfu", BAD)],
)
def test_only_policies_that_spare_what_is_dirty_are_good(policy: str, level: Level) -> None:
    assert judge_eviction(of_redis({"maxmemory_policy": policy})).level is level
    assert judge_eviction(of_redis({}, maxmemory_policy=policy)).level is level


def test_a_policy_that_nobody_tells_is_a_warning() -> None:
    assert judge_eviction(of_redis({})).level is WARNING


@pytest.mark.parametrize(
    ("info", "config", "level"),
    [
        ({"aof_enabled": 1, "aof_last_write_status": "ok"}, {"appendfsync": "everysec"}, GOOD),
        ({"aof_enabled": 1}, {"appendfsync": "always"}, GOOD),
        ({"aof_enabled": 1}, {}, GOOD),
        ({"aof_enabled": 1}, {"appendfsync": "no"}, WARNING),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, {"appendfsync": "always"}, BAD),
        ({"aof_enabled": 1, "aof_last_bgrewrite_status": "err"}, {}, BAD),
        ({"aof_enabled": 0}, {"save": ""}, WARNING),
        ({"aof_enabled": 0}, {"save": "3600 1"}, WARNING),
        ({"aof_enabled": 0}, {}, WARNING),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, {"save": "3600 1"}, BAD),
        ({}, {}, WARNING),
    ],
)
def test_persistence(info: Mapping[str, object], config: Mapping[str, str], level: Level) -> None:
    assert judge_persistence(of_redis(info, **config)).level is level


@pytest.mark.parametrize(
    ("used", "most", "level"),
    [(10, 100, GOOD), (75, 100, GOOD), (76, 100, WARNING), (90, 100, WARNING), (91, 100, BAD), (10, 0, WARNING)],
)
def test_memory(used: int, most: int, level: Level) -> None:
    assert judge_memory(of_redis({"used_memory": used, "maxmemory": most})).level is level
    assert judge_memory(of_redis({})).level is WARNING


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (of_sql(), GOOD),
        (of_sql(version="14.0"), GOOD),
        (of_sql(version="13.22"), BAD),
        (of_sql("SQLite", "3.40.1"), GOOD),
        (of_sql("SQLite", "3.39.4"), BAD),
        (of_sql(version="18beta1"), GOOD),
        (of_sql(standby=True), BAD),
        (of_sql(encoding="LATIN1"), BAD),
    ],
)
def test_databases_that_are_too_old_or_take_no_writes_are_bad(facts: SqlFacts, level: Level) -> None:
    assert judge_database(facts).level is level


@pytest.mark.parametrize(("revision", "level"), [(_HEAD, GOOD), ("0001", BAD), ("9999", BAD), (None, BAD)])
def test_only_the_schema_of_this_version_is_good(revision: str | None, level: Level) -> None:
    found = judge_schema(of_sql(revision=revision))
    assert found.level is level
    assert ("db upgrade" in found.advice) == (revision in ("0001", None))


@pytest.mark.parametrize(
    ("hot", "durable", "level"),
    [
        (OURS | {"installation": "a"}, OURS | {"installation": "a", "last_probe": ""}, GOOD),
        (OURS | {"installation": "a"}, OURS | {"installation": "b"}, BAD),
        (OURS | {"buckets": "8"}, OURS, BAD),
        (OURS, OURS | {"layout": "2"}, BAD),
        ({}, OURS, WARNING),
        (OURS, {}, BAD),
        (OURS, {"last_probe": ""}, BAD),
        ({}, {"last_probe": ""}, GOOD),
        ({}, {}, GOOD),
        (OURS, None, GOOD),
        (None, OURS, GOOD),
        (None, OURS | {"buckets": "8"}, BAD),
        ({}, None, GOOD),
    ],
)
def test_both_tiers_must_have_been_set_up_alike_and_for_each_other(
    hot: Mapping[str, str] | None, durable: Mapping[str, str] | None, level: Level
) -> None:
    assert judge_layout(hot, durable, OURS).level is level


@pytest.mark.parametrize(
    ("hot", "fences", "level"),
    [
        ([Incarnation("a", True), Incarnation("", False)], {0: "a"}, GOOD),
        ([Incarnation("a", True)], None, GOOD),
        ([Incarnation("a", False)], {0: "old"}, WARNING),
        ([Incarnation("a", True)], {0: "b"}, BAD),
        ([Incarnation("a", True)], {}, BAD),
        ([Incarnation("", False)], {0: "a"}, GOOD),
    ],
)
def test_an_incarnation_that_the_database_does_not_name_is_bad(
    hot: list[Incarnation], fences: Mapping[int, str] | None, level: Level
) -> None:
    assert judge_buckets(dict(enumerate(hot)), fences).level is level


def test_changes_of_incarnations_within_a_day_are_a_warning_where_something_was_lost() -> None:
    recent = History(last_hour=1, last_day=3, since_last=90.0)
    assert judge_incarnations(History(), embedded=False).level is GOOD
    assert judge_incarnations(History(0, 0, 200_000.0), embedded=False).level is GOOD
    assert judge_incarnations(recent, forgetful=1).level is WARNING
    assert judge_incarnations(recent, kept=False).level is WARNING
    assert judge_incarnations(recent, forgetful=1, embedded=True).level is GOOD


def test_a_restart_with_all_that_there_was_is_no_alarm() -> None:
    assert judge_incarnations(History(last_hour=1, last_day=3, since_last=90.0)).level is GOOD


def test_what_was_renewed_on_command_is_no_alarm_until_something_changes_since() -> None:
    recent = History(last_hour=1, last_day=3, since_last=90.0)
    told = judge_incarnations(recent, kept=False, restored_ago=89.0)
    assert told.level is GOOD
    assert told.found.endswith("renewed by `db restored` 89 s ago")
    assert judge_incarnations(recent, kept=False, restored_ago=200.0).level is WARNING
    assert judge_incarnations(recent, forgetful=1, restored_ago=89.0).level is WARNING


def test_the_first_incarnation_of_a_bucket_is_no_change() -> None:
    minute, week = NOW - timedelta(minutes=1), NOW - timedelta(days=7)
    assert summed([(minute, minute, 1, 1, 1)], NOW) == History(0, 0, None)
    assert summed([(minute, minute, 2, 2, 2)], NOW) == History(1, 1, 60.0)
    two_hours = NOW - timedelta(hours=2)
    assert summed([(week, two_hours, 3, 0, 1), (week, week, 1, 0, 0)], NOW) == History(0, 1, 7200.0)
    naive = minute.replace(tzinfo=None)
    assert summed([(naive, naive, 1, 1, 1)], NOW) == History(0, 0, None), "as SQLite tells times"


@pytest.mark.parametrize(
    ("redis", "database", "level"),
    [
        (0.0, 0.2, GOOD),
        (-0.6, 0.6, WARNING),
        (1.5, None, WARNING),
        (None, -59.0, WARNING),
        (61.0, 0.0, BAD),
        (None, -3600.0, BAD),
    ],
)
def test_clocks_are_compared_with_each_other_and_with_this_machine(
    redis: float | None, database: float | None, level: Level
) -> None:
    assert judge_clocks(redis, database).level is level


def worker(age: float) -> WorkerSample:
    """A worker that was last heard of so many seconds ago."""
    return WorkerSample(f"host:{age}", "host", 1, age)


@pytest.mark.parametrize(
    ("ages", "level"),
    [([1.0], GOOD), ([1.0, 14.0], GOOD), ([1.0, 16.0], WARNING), ([16.0], WARNING), ([100.0], BAD), ([], BAD)],
)
def test_a_worker_must_be_alive_and_none_silent_for_longer_than_a_lease(ages: list[float], level: Level) -> None:
    assert judge_workers([worker(age) for age in ages]).level is level


def test_a_worker_of_which_nothing_is_heard_is_not_told_to_be_alive() -> None:
    assert judge_workers([worker(20.0)]).found == "none was heard for 20 s: it may be dead"
    both = judge_workers([worker(20.0), worker(1.0)])
    assert both.found == "1 alive, the latest heartbeat 1 s ago; 1 silent for up to 20 s"


def test_the_embedded_server_has_no_limit_of_memory_and_needs_none() -> None:
    unlimited = of_redis({"used_memory": 1_000_000, "maxmemory": 0})
    assert judge_memory(unlimited, embedded=True).level is GOOD
    assert judge_memory(unlimited).level is WARNING


@pytest.mark.parametrize(
    ("age", "level"), [(None, GOOD), (0.0, GOOD), (11.9, GOOD), (12.1, WARNING), (1800.0, WARNING), (1801.0, BAD)]
)
def test_the_oldest_dirt_may_be_as_old_as_the_flush_delay_and_some_seconds(age: float | None, level: Level) -> None:
    assert judge_oldest(age, 2.0, SETTINGS).level is level


@pytest.mark.parametrize(
    ("scopes", "level"), [(0, GOOD), (500_000, GOOD), (500_001, WARNING), (999_999, WARNING), (1_000_000, BAD)]
)
def test_dirty_scopes_are_held_against_the_limit_of_back_pressure(scopes: int, level: Level) -> None:
    assert judge_dirty(scopes, SETTINGS).level is level


def test_any_dead_letter_is_bad() -> None:
    assert judge_letters(0).level is GOOD
    assert judge_letters(1).level is BAD
    assert "dead list" in judge_letters(1).advice


def test_only_what_is_bad_is_unhealthy() -> None:
    assert Report([good("a", "x"), warning("b", "x", "y")]).healthy
    assert not Report([good("a", "x"), bad("b", "x", "y")]).healthy


def test_versions_are_read_by_the_numbers_that_they_begin_with() -> None:
    assert [version_of(text) for text in ("7.0.15", "18beta1", "")] == [(7, 0, 15), (18,), ()]


def test_an_older_database_is_told_for_a_week_and_is_bad_until_all_is_marked() -> None:
    day = 86_400.0
    assert judge_older(0.0, 0.0, day) is None
    assert judge_older(day, 2 * day, 9 * day) is None
    levels = [found.level for found in (judge_older(day, 0.0, 2 * day), judge_older(day, day + 1, 2 * day)) if found]
    assert levels == [Level.BAD, WARNING]
