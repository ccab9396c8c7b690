"""Registering: what Redis may have forgotten is told once a minute, with all buckets of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sessioncache.coordination import fencing
from sessioncache.coordination.fencing import Fencing
from sessioncache.errors import ConfigurationError, DurableTierUnavailableError
from sessioncache.primitives.deadline import seconds_left, within
from tests.waiting import wait_until_async


async def test_buckets_that_come_one_by_one_are_summed_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nothing: Any = None
    monkeypatch.setattr(fencing, "_QUIET", 0.05)
    one = Fencing(nothing, nothing)
    with caplog.at_level(logging.WARNING, "sessioncache"):
        for _ in range(74):
            one._tell(1, 1)
        assert caplog.messages == ["Redis may have forgotten something: 1 bucket got a new incarnation"]
        await wait_until_async(lambda: len(caplog.messages) == 2, 5, "the others are told")
        await wait_until_async(lambda: one._telling is None, 5, "nothing more is to be told")
    assert caplog.messages[1:] == ["Redis may have forgotten something: 73 buckets got a new incarnation"]


class Named:
    """A Redis that has incarnations, and a database that has to say whether its fences name them."""

    def __init__(self, *, away: bool) -> None:
        self._away = away
        self.kept: list[int] = []

    async def registered(self, buckets: Sequence[int]) -> dict[int, str]:
        return {bucket: f"of {bucket}" for bucket in buckets}

    async def named_by_fences(self, held: Mapping[int, str]) -> dict[int, str]:
        if self._away:  # as a driver that waits for its time to be over
            await asyncio.sleep(seconds_left())
            raise DurableTierUnavailableError("no answer in time")
        raise ConfigurationError("it belongs to another database")

    async def keep(self, buckets: Sequence[int]) -> set[int]:
        self.kept += buckets
        return set(buckets)


def over(named: Named) -> Fencing:
    """Fencing between the two."""
    both: Any = named
    return Fencing(both, both)


async def test_r18_what_sql_names_already_is_still_asked_whose_it_is() -> None:
    with pytest.raises(ConfigurationError, match="another database"):
        await over(Named(away=False)).register([1, 2])


async def test_who_asks_for_no_bucket_meets_nothing_of_what_others_met() -> None:
    fencing = over(Named(away=False))
    with pytest.raises(ConfigurationError):
        await fencing.register([1])
    await fencing.register([])


async def test_who_asks_for_no_bucket_waits_for_nobody() -> None:
    fencing = over(Named(away=True))
    first = asyncio.create_task(fencing.register([1]))
    await asyncio.sleep(0)
    await fencing.register([])
    assert not first.done()
    await fencing.aclose()
    with pytest.raises(ConfigurationError, match="closed"):
        await first


async def test_r17_with_sql_hung_there_is_time_left_to_use_what_there_is() -> None:
    named = Named(away=True)
    with within(0.4):
        await over(named).register([1, 2])
    assert named.kept == [1, 2]
