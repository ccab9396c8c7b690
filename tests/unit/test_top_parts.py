"""The pure parts of `top`: rates and lags of two pulses, figures, lines, the screen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from sessioncache.cli.samples import as_json, as_line
from sessioncache.cli.screen import render
from sessioncache.hot.metrics import Incarnation, Sample, ServerSample, WorkerSample, lag_seconds
from sessioncache.hot.rates import Rates, lags_between, percentile, rates_between
from sessioncache.primitives.units import sparkline, told_bytes, told_number, told_seconds
from sessioncache.settings import CacheSettings

START = 1_790_000_000.0
ALIVE = WorkerSample("w1", "box", 42, 1.5)
SILENT = WorkerSample("w2", "box", 43, 44.0)


def pulse(at: float = 0.0, **values: Any) -> Sample:
    """A pulse of an installation at rest, but for the values given."""
    nothing: dict[str, Any] = dict.fromkeys(("dirty_scopes", "dirty_entries", "dead_letters"), 0)
    nothing |= dict.fromkeys(("rows", "flushes", "hydrates", "conflicts"), 0)
    nothing |= {"exact": True, "oldest_age": None, "lags": {}, "workers": (ALIVE,)}
    nothing |= {"incarnations": {0: Incarnation("id", True)}, "server": ServerSample(2**20, 0, 3, 7)}
    return Sample(time=START + at, **{**nothing, **values})


def drawn(pulses: Sequence[Sample], width: int = 100, **options: Any) -> str:
    """The screen as text."""
    console = Console(record=True, width=width, file=StringIO())
    console.print(render(pulses, **options))
    return console.export_text()


# ---- rates


def test_rates_are_what_the_counters_grew_by_a_second() -> None:
    before = pulse(rows=100, flushes=10, hydrates=5, conflicts=1)
    after = pulse(4, rows=500, flushes=50, hydrates=7, conflicts=1)
    assert rates_between(before, after) == Rates(rows=100.0, flushes=10.0, hydrates=0.5, conflicts=0.0)


def test_rates_are_never_negative_where_redis_forgot_its_counters() -> None:
    before, after = pulse(rows=1_000, hydrates=50), pulse(2, rows=10, hydrates=50)
    assert rates_between(before, after) == Rates(rows=5.0, flushes=0.0, hydrates=0.0, conflicts=0.0)


@pytest.mark.parametrize("at", [0.0, -5.0])
def test_there_are_no_rates_while_the_clock_of_redis_stands_or_goes_back(at: float) -> None:
    assert rates_between(pulse(rows=1), pulse(at, rows=2)) is None


@pytest.mark.parametrize(
    ("before", "after", "between"),
    [
        ({}, {40: 3}, {40: 3}),
        ({40: 3}, {40: 5, 41: 1}, {40: 2, 41: 1}),
        ({40: 5, 41: 1}, {40: 5, 41: 1}, {}),
        ({40: 5, 41: 9}, {40: 2}, {40: 2}),
    ],
)
def test_lags_are_those_of_the_rows_between(
    before: Mapping[int, int], after: Mapping[int, int], between: Mapping[int, int]
) -> None:
    assert lags_between(pulse(lags=before), pulse(2, lags=after)) == between


def test_percentiles_are_the_step_that_holds_the_row_in_question() -> None:
    lags = {0: 50, 40: 49, 60: 1}
    assert [percentile(lags, share) for share in (0.0, 0.5, 0.51, 0.99, 0.991, 1.0)] == [
        lag_seconds(step) for step in (0, 0, 40, 40, 60, 60)
    ]
    assert percentile({}, 0.5) is None
    assert math.isclose(lag_seconds(40), 1.024)


# ---- figures


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "-"),
        (0.0, "0 ms"),
        (0.83, "830 ms"),
        (1.0, "1 s"),
        (9.876, "9.88 s"),
        (42.4, "42 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (454.2, "8 min"),
        (600.0, "10 min"),
        (3_600.0, "1 h"),
        (5_400.0, "90 min"),
        (7_200.0, "2 h"),
        (259_200.0, "3 d"),
    ],
)
def test_time_spans_are_told_in_the_unit_that_fits(seconds: float | None, told: str) -> None:
    assert told_seconds(seconds) == told


@pytest.mark.parametrize(
    ("number", "told"), [(None, "-"), (0, "0"), (0.25, "0.2"), (3, "3"), (1_234_567, "1,234,567"), (100.4, "100")]
)
def test_numbers_are_told_with_separators(number: float | None, told: str) -> None:
    assert told_number(number) == told


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 B"), (1_023, "1023 B"), (1_024, "1 KiB"), (12_900_000, "12.3 MiB"), (2**30, "1 GiB")]
)
def test_sizes_are_told_in_binary_units(number: int, told: str) -> None:
    assert told_bytes(number) == told


def test_a_sparkline_goes_from_zero_to_its_largest_value() -> None:
    assert sparkline([9, 0, 1, 2], 3) == "▁▅█"
    assert sparkline([0, 0], 5) == "▁▁"
    assert sparkline([], 5) == ""


# ---- lines


def test_a_line_of_json_has_every_figure_and_no_rates_at_first() -> None:
    first = pulse(rows=5, dirty_scopes=2, dirty_entries=3, oldest_age=0.5, workers=(ALIVE, SILENT))
    told = json.loads(as_json([first], ""))
    assert (told["away"], told["per_second"], told["lag"]) == (None, None, None)
    assert (told["time"], told["dirty_scopes"], told["dirty_entries"], told["oldest_age"]) == (
        "2026-09-21T14:13:20+00:00",
        2,
        3,
        0.5,
    )
    assert [worker["alive"] for worker in told["workers"]] == [True, False]
    assert told["buckets"] == {"all": 1, "used": 1, "registered": 1}
    assert told["redis"]["used_memory"] == 2**20
    second = json.loads(as_json([first, pulse(2, rows=9, lags={40: 4})], ""))
    assert second["per_second"]["rows"] == 2.0
    assert second["lag"] == {"p50": 1.024, "p99": 1.024}


def test_a_line_of_text_says_what_the_last_interval_brought() -> None:
    line = as_line(
        [pulse(rows=5), pulse(2, rows=9, lags={40: 4}, dirty_scopes=1_200, dirty_entries=5, exact=False)], ""
    )
    for told in (
        "waiting 1,200 scopes ~5 entries",
        "oldest -",
        "flushed 2 rows/s",
        "p50 1.02 s",
        "workers 1 of 1 alive",
    ):
        assert told in line
    assert "\n" not in line


def test_lines_say_when_redis_is_away() -> None:
    assert json.loads(as_json([pulse()], "why")) == {"away": "why"}
    assert as_line([pulse()], "why") == "Redis is away: why; trying again"


# ---- the screen


def test_the_screen_shows_what_waits_what_is_flushed_and_who_does_it() -> None:
    first = pulse(dirty_scopes=10, rows=100)
    now = pulse(2, dirty_scopes=1_204, dirty_entries=3_001, oldest_age=0.83, rows=2_700, flushes=800, hydrates=24)
    text = drawn([first, now])
    for told in ("1,204 scopes, 3,001 entries", "830 ms", "1,300 rows/s, 400 scopes/s", "12 scopes/s, 0 conflicts/s"):
        assert told in text
    for told in ("w1", "box", "42", "1.5 s ago", "1 MiB, 3 clients", "2026-09-21 14:13:22 UTC", "▁█"):
        assert told in text


def test_the_screen_says_that_nothing_waits_and_that_entries_are_estimated() -> None:
    assert "nothing waits" in drawn([pulse()])
    assert "about 5 entries" in drawn([pulse(dirty_scopes=2, dirty_entries=5, exact=False, oldest_age=1.0)])


def test_the_screen_says_that_no_worker_is_alive() -> None:
    assert "no worker is alive" in drawn([pulse(workers=())])
    silent = drawn([pulse(workers=(SILENT,))])
    assert "no worker is alive" in silent
    assert "silent for 44 s" in silent
    assert "no worker is alive" not in drawn([pulse(workers=(SILENT, ALIVE))])


def test_the_screen_shows_the_silent_workers_of_many_and_counts_the_rest() -> None:
    many = [WorkerSample(f"n{number:02}", "box", number, 1.0) for number in range(20)]
    text = drawn([pulse(workers=(*many, SILENT))])
    assert "w2" in text
    assert "and 9 more" in text


def test_the_screen_says_that_redis_is_away_and_keeps_the_last_figures() -> None:
    text = drawn([pulse(dirty_scopes=7, oldest_age=1.0)], away="no answer")
    assert "Redis is away: no answer" in text
    assert "7 scopes" in text


def test_the_screen_tells_of_buckets_that_are_not_registered() -> None:
    known = {0: Incarnation("id", True), 1: Incarnation("id", False), 2: Incarnation("", False)}
    assert "2 of 3 used, 1 not registered" in drawn([pulse(incarnations=known)])


def test_names_on_the_screen_are_no_markup_and_move_no_cursor() -> None:
    text = drawn([pulse(workers=(WorkerSample("[red]w\x1b[2J", "box", 1, 1.0),))])
    assert r"[red]w\x1b[2J" in text


@pytest.mark.parametrize(("age", "style"), [(1.0, "green"), (11.0, "yellow"), (51.0, "bold red"), (500.0, "bold red")])
def test_age_and_backlog_are_coloured_by_the_limits_of_back_pressure(age: float, style: str) -> None:
    limits = CacheSettings(max_dirty=100, max_dirty_age=100.0)
    waiting = pulse(dirty_scopes=int(age), oldest_age=age)
    console = Console(width=100, color_system="standard", force_terminal=True)
    told = {
        segment.text.strip(): str(segment.style)
        for segment in console.render(render([waiting], limits=limits))
        if "scopes, 0 entries" in segment.text or "writes are refused" in segment.text
    }
    assert set(told.values()) == {style}


@pytest.mark.parametrize("width", [40, 70, 100, 200])
def test_the_screen_fits_every_width(width: int) -> None:
    text = drawn([pulse(at * 2.0, dirty_scopes=at, oldest_age=1.0) for at in range(60)], width)
    assert max(map(len, text.splitlines())) <= width
