"""Who waits for a scope to be loaded, or compared with SQL, is told which tier did not answer in time."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from sessioncache.deadline import within
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.layout import Layout
from sessioncache.hot.merging import Taken
from sessioncache.hydration import Hydrator
from sessioncache.revalidation import Revalidator
from sessioncache.scopes import user_ref

PLACE = Layout("t", 2).place(user_ref(2, "org", "app", "u"))


async def never(*_: Any, **__: Any) -> None:
    """A server that does not answer."""
    await asyncio.Event().wait()


def revalidator(merging: Any, durable: Any) -> Revalidator:
    """One over tiers that are as a test makes them."""
    merging.take_tokens = AsyncMock(return_value=[Taken(PLACE, b"token", "incarnation")])
    merging.kept = lambda _: nullcontext()
    merging.release = AsyncMock()
    return Revalidator(merging, durable, Mock(), Mock())


async def revalidate(one: Revalidator) -> None:
    """Wait for it as a call does whose time is soon over."""
    try:
        with within(0.05):
            await one.revalidate(PLACE)
    finally:
        await one.aclose()


async def test_a_revalidation_that_waits_for_redis_names_redis() -> None:
    with pytest.raises(HotTierUnavailableError):
        await revalidate(revalidator(Mock(look=never), Mock()))


async def test_a_revalidation_that_waits_for_sql_names_sql() -> None:
    looks = AsyncMock(return_value=[Mock(since=0)])
    with pytest.raises(DurableTierUnavailableError):
        await revalidate(revalidator(Mock(look=looks), Mock(read_changes=never)))


async def test_a_load_that_waits_for_another_loader_names_sql() -> None:
    hydrator = Hydrator(Mock(take_token=never), Mock(), Mock())
    with pytest.raises(DurableTierUnavailableError), within(0.05):
        await hydrator.hydrate([PLACE])
    await hydrator.aclose()
