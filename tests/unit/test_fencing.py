"""Registering: what Redis may have forgotten is told once a minute, with all buckets of it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from sessioncache.coordination import fencing
from sessioncache.coordination.fencing import Fencing
from sessioncache.errors import ConfigurationError
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
    """A Redis, and a database whose fence names what it has."""

    def __init__(self) -> None:
        self.owner_is_asked_of: list[str] = []

    async def registered(self, buckets: Sequence[int]) -> dict[int, str]:
        return {bucket: f"of {bucket}" for bucket in buckets}

    async def read_fences(self, buckets: Sequence[int]) -> dict[int, str]:
        return {bucket: f"of {bucket}" for bucket in buckets}

    async def check_owned(self, incarnations: Collection[str]) -> None:
        self.owner_is_asked_of += incarnations
        raise ConfigurationError("it belongs to another database")


async def test_r18_what_sql_names_already_is_still_asked_whose_it_is() -> None:
    named: Any = Named()
    with pytest.raises(ConfigurationError, match="another database"):
        await Fencing(named, named).register([1, 2])
    assert named.owner_is_asked_of == ["of 1", "of 2"]


async def test_who_asks_for_no_bucket_meets_nothing_of_what_others_met() -> None:
    named: Any = Named()
    fencing = Fencing(named, named)
    with pytest.raises(ConfigurationError):
        await fencing.register([1])
    await fencing.register([])


async def test_who_asks_for_no_bucket_waits_for_nobody() -> None:
    named: Any = Named()
    fencing = Fencing(named, named)
    async with fencing._looking, fencing._swapping:
        await fencing.register([])
