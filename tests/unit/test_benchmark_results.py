"""The file of the benchmarks' results: merged, never half written."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.measuring import Spread, ratios
from benchmarks.results import figure, measured, merged, missing, read, record


def test_a_figure_has_its_quartiles_beside_it() -> None:
    assert figure("turn", Spread.of([3, 1, 2, 4, 5])) == {"turn": 3, "turn_low": 2, "turn_high": 4}


def test_what_could_not_be_measured_is_null_with_the_reason() -> None:
    assert missing(["a", "b"], "no server") == {
        "a": None,
        "a_reason": "no server",
        "b": None,
        "b_reason": "no server",
    }


def test_merging_keeps_what_others_measured() -> None:
    assert merged({"theirs": 1, "ours": 2}, {"ours": 3}) == {"ours": 3, "theirs": 1}


def test_a_new_figure_takes_the_old_spread_and_reason_with_it() -> None:
    measured = figure("rate", Spread(2.0, 1.0, 3.0))
    lost = missing(["rate"], "no server")
    assert merged(measured, lost) == lost
    assert merged(lost, measured) == dict(sorted(measured.items()))
    assert merged({"memory_low": 1}, {"rate": 2}) == {"memory_low": 1, "rate": 2}


def test_figures_are_rounded_to_four_digits() -> None:
    assert merged({}, {"ratio": 1.23456789, "count": 7}) == {"count": 7, "ratio": 1.2346}


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert ratios([2, 40, 9], [1, 10, 3]).middle == 3


def test_figures_of_code_that_changed_meanwhile_say_so() -> None:
    assert measured("turn", "a1", "a1")["turn_code"] == "a1"
    assert measured("turn", "a1", "b2")["turn_code"] == "a1, then b2: measure again"


def test_there_are_no_figures_before_the_first_run(tmp_path: Path) -> None:
    assert read(tmp_path / "results.json") == {}


def test_whoever_records_at_once_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: record({f"key{number:02}": number}, path), range(32)))
    assert json.loads(path.read_text()) == {f"key{number:02}": number for number in range(32)}
    assert [found.name for found in tmp_path.iterdir()] == ["results.json"]


def test_what_json_cannot_hold_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    record({"a": 1}, path)
    with pytest.raises(ValueError, match="JSON"):
        record({"b": float("nan")}, path)
    assert read(path) == {"a": 1}
