"""What a call is told that was tried again and again, in vain."""

from __future__ import annotations

import asyncio

import pytest

from sessioncache import DurableTierUnavailableError, SessionCacheError
from sessioncache.errors import HotTierUnavailableError
from sessioncache.primitives.deadline import seconds_left, within
from tests.client.conftest import small_urls
from tests.helpers import Urls, connect

__all__ = ["small_urls"]


@pytest.mark.parametrize("kind", [DurableTierUnavailableError, HotTierUnavailableError])
async def test_a_last_try_that_runs_out_of_time_does_not_hide_why_the_database_is_away(
    small_urls: Urls, kind: type[SessionCacheError]
) -> None:
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise DurableTierUnavailableError("nobody listens there")
        await asyncio.sleep(max(0.0, seconds_left()) + 0.01)
        raise kind("it did not answer in time")

    async with connect(small_urls) as cache:
        with within(1.0), pytest.raises(DurableTierUnavailableError, match="nobody listens there"):
            await cache._tiers.perform(attempt)
    assert tries == 2
