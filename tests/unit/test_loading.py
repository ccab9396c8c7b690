"""Who waits for a scope to be loaded, or compared with SQL, is told which tier did not answer in time."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from sessioncache.deadline import within
from sessioncache.errors import DurableTierUnavailableError, HotTierUnavailableError
from sessioncache.hot.calls import Token
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


async def hydrate(hot: Any, durable: Any) -> None:
    """Wait for a loading as a call does whose time is soon over."""
    hydrator = Hydrator(hot, durable, Mock())
    try:
        with within(0.05):
            await hydrator.hydrate([PLACE])
    finally:
        await hydrator.aclose()


async def test_a_load_that_waits_for_another_process_says_so() -> None:
    with pytest.raises(DurableTierUnavailableError, match="another process has been loading or creating it"):
        await hydrate(Mock(take_token=AsyncMock(return_value=2.0)), Mock())


async def test_a_load_that_waits_for_redis_names_redis() -> None:
    with pytest.raises(HotTierUnavailableError):
        await hydrate(Mock(take_token=never), Mock())


async def test_a_load_that_waits_for_sql_names_sql() -> None:
    hot = Mock(take_token=AsyncMock(return_value=Token(b"token", b"incarnation", b"")), confirm_absent=AsyncMock())
    hot.kept = lambda *_: nullcontext()
    with pytest.raises(DurableTierUnavailableError, match="from the database in time"):
        await hydrate(hot, Mock(read_scopes=never))
