"""Outages are told once, ever more rarely while they last, and once when they are over."""

from __future__ import annotations

import logging

import pytest

from sessioncache.primitives import outages
from sessioncache.primitives.outages import REDIS, SQL, Outages


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


def test_one_line_when_a_tier_goes_one_when_it_is_back_and_few_between(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(outages, "time", clock)
    told = Outages(logging.getLogger("test"), lambda: "7 scopes wait to be flushed")
    with caplog.at_level(logging.WARNING):
        told.back(SQL)
        for _ in range(3_600):
            told.away(SQL, "nobody listens there")
            clock.now += 1
        assert told.current
        assert told.causes() == {SQL: "nobody listens there"}
        told.away(REDIS, "no answer")
        told.back(SQL)
        told.back(SQL)
        told.back(REDIS)
    assert not told.current
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "the SQL database is away, and is tried again: nobody listens there"
    assert lines[1:6] == [
        f"the SQL database has been away for {minutes}: nobody listens there"
        for minutes in ("60 s", "3 min", "7 min", "15 min", "31 min")
    ]
    assert lines[6:] == [
        "Redis is away, and is tried again: no answer",
        "the SQL database is back after 1 h; 7 scopes wait to be flushed",
        "Redis is back after 0 ms",
    ]
