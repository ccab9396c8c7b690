"""Silence: only what a server was asked and has not answered counts."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from sessioncache.durable import hang_detection
from sessioncache.durable.hang_detection import HangDetection


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock shows."""
    now = [100.0]
    monkeypatch.setattr(hang_detection, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_statements_may_take_long_together_and_what_lies_between_them_longer(clock: list[float]) -> None:
    heard = HangDetection(5.0)
    for _ in range(3):
        heard.asks(())
        clock[0] += 4.0
        assert heard.seconds_left() == 1.0
        heard.answered()
        clock[0] += 60.0
        assert heard.seconds_left() == 5.0


def test_a_statement_that_is_not_answered_is_too_long_and_so_is_a_commit(clock: list[float]) -> None:
    statement, commit = HangDetection(5.0), HangDetection(5.0)
    statement.asks(())
    commit.ends_it()
    clock[0] += 5.0
    assert statement.seconds_left() <= 0
    assert commit.seconds_left() <= 0


def test_a_large_statement_has_the_time_that_a_slow_link_takes_for_it(clock: list[float]) -> None:
    heard = HangDetection(5.0)
    heard.asks((b"x" * 1024 * 1024, "y" * 1024 * 1024, 3))
    clock[0] += 8.5
    assert math.isclose(heard.seconds_left(), 0.5)
