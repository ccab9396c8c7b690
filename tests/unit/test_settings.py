"""Settings are refused by name, before anything is opened."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from sessioncache_worker.cli import _settings, build_parser

from sessioncache.errors import ConfigurationError
from sessioncache.settings import CacheSettings, WorkerSettings


def test_an_unknown_setting_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown setting 'timout'; there are .*temp_ttl, timeout"):
        CacheSettings.of({"timout": 1})


@pytest.mark.parametrize("value", [0, -1, "5", None, True, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["timeout", "idle_ttl", "temp_ttl"])
def test_a_time_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    if value is None and name == "idle_ttl":
        return
    with pytest.raises(ConfigurationError, match=f"{name} must be a number above 0"):
        CacheSettings.of({name: value})


@pytest.mark.parametrize("value", [0, -1, "5", None, True, 1.5, 256.0])
def test_buckets_are_a_whole_number(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="buckets must be a whole number above 0"):
        CacheSettings.of({"buckets": value})


def test_there_are_no_more_buckets_than_hash_slots() -> None:
    assert CacheSettings.of({"buckets": 16_384}).buckets == 16_384
    with pytest.raises(ConfigurationError, match="buckets must be a whole number from 1 to 16384"):
        CacheSettings.of({"buckets": 16_385})


@pytest.mark.parametrize("name", ["batch_rows", "batch_bytes"])
def test_the_size_of_a_batch_is_a_whole_number(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number above 0"):
        WorkerSettings.of({name: 1.5})


@pytest.mark.parametrize("value", ["", "a{b", "a}b", "a\0b", 7])
def test_a_prefix_that_would_break_the_keys_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="prefix must be a text"):
        CacheSettings.of({"prefix": value})


@pytest.mark.parametrize("name", ["lease", "flush_delay"])
def test_a_lease_or_delay_of_more_than_ten_minutes_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="at most 600 seconds"):
        WorkerSettings.of({name: 601})


@pytest.mark.parametrize("name", ["flush_delay", "lease", "grace", "sweep"])
def test_a_setting_of_the_worker_is_checked_too(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a number above 0"):
        WorkerSettings.of({name: 0})


def test_every_setting_of_the_worker_is_an_option_of_its_command() -> None:
    given: dict[str, Any] = {
        "flush_delay": 2.0,
        "lease": 20.0,
        "batch_rows": 10,
        "batch_bytes": 100,
        "max_attempts": 5,
        "grace": 7.0,
    }
    given |= {"idle_ttl": 600.0, "janitor": 30.0, "sweep": 3.0, "prefix": "p", "buckets": 8}
    words = [word for name, value in given.items() for word in ("--" + name.replace("_", "-"), str(value))]
    assert _settings(build_parser().parse_args(words)) == WorkerSettings(**given)
    assert _settings(build_parser().parse_args([])) == WorkerSettings()
    assert {one.name for one in fields(WorkerSettings)} == set(given)


def test_the_documented_defaults_hold() -> None:
    cache, worker = CacheSettings.of({}), WorkerSettings.of({})
    assert (cache.timeout, cache.idle_ttl, cache.temp_ttl, cache.buckets) == (5, None, 3_600, 256)
    assert worker.idle_ttl == 86_400
    assert (worker.flush_delay, worker.lease, worker.batch_rows, worker.batch_bytes) == (1, 15, 1_000, 4 * 2**20)
