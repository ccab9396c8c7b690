"""Registering: what Redis may have forgotten is told once a minute, with all buckets of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from sessioncache.coordination import fencing
from sessioncache.coordination.fencing import Fencing
from sessioncache.errors import ConfigurationError, DurableTierUnavailableError
from sessioncache.hot.incarnations import Current
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


class Kept:
    """A Redis that forgot nothing, and a database whose fence names what it has."""

    def __init__(self) -> None:
        self.owner_is_asked_of: list[str] = []

    async def current(self, buckets: Sequence[int], unusable: Mapping[int, str], **_: bool) -> dict[int, Current]:
        return {bucket: Current(f"of {bucket}", False, True, "") for bucket in buckets}

    async def claim(self) -> None: ...

    async def read_fences(self, buckets: Sequence[int]) -> dict[int, str]:
        return {bucket: f"of {bucket}" for bucket in buckets}

    async def check_owned(self, incarnations: Collection[str]) -> None:
        self.owner_is_asked_of += incarnations
        raise ConfigurationError("it belongs to another database")


async def test_r18_what_sql_names_already_is_still_asked_whose_it_is() -> None:
    kept: Any = Kept()
    with pytest.raises(ConfigurationError, match="another database"):
        await Fencing(kept, kept).register([1, 2])
    assert kept.owner_is_asked_of == ["of 1", "of 2"]


class Away(Kept):
    """A database that cannot be used, and says so to all that ask meanwhile."""

    async def read_fences(self, buckets: Sequence[int]) -> dict[int, str]:
        await asyncio.sleep(0)
        raise DurableTierUnavailableError("others hold it for too long")

    async def keep(self, buckets: Sequence[int]) -> bool:
        return False


async def test_all_that_wait_for_a_registration_are_told_why_it_failed() -> None:
    away: Any = Away()
    fencing = Fencing(away, away)
    met = await asyncio.gather(*(fencing.register([bucket]) for bucket in range(5)), return_exceptions=True)
    assert [str(error) for error in met] == ["others hold it for too long"] * 5
