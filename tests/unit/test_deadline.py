"""Deadlines: the earlier one stays in force, but for what is asked apart."""

from __future__ import annotations

from sessioncache.primitives.deadline import apart, seconds_left, within


async def test_an_outer_deadline_that_is_earlier_stays_in_force() -> None:
    with within(0.0), within(60.0):
        assert seconds_left() == 0.0


async def test_what_is_asked_apart_has_time_of_its_own() -> None:
    with within(0.0), apart(60.0):
        assert seconds_left() > 30.0
