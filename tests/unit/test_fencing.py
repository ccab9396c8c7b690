"""Registering: what Redis may have forgotten is told once a minute, with all buckets of it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sessioncache.coordination import fencing
from sessioncache.coordination.fencing import Fencing
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
