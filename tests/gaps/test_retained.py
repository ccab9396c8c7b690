"""Retention: noted without holding up what is hot, seen to for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from sessioncache_worker.janitor import Janitor

from sessioncache import DurableTierUnavailableError, OutcomeUnknownError, SessionCache
from tests.helpers import Urls, connect


async def test_while_sql_is_away_not_every_hot_call_tries_to_note_the_retention(
    cache: SessionCache, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create("ada", session_id="s1", state={"a": 1})
    tried = []

    async def away(name: str, value: str) -> None:
        tried.append(name)
        raise DurableTierUnavailableError

    async with connect(urls, retention=3600) as keeping:
        monkeypatch.setattr(keeping._tiers.durable, "note", away)
        for _ in range(3):
            await keeping.get("ada", "s1")
    assert len(tried) == 1


async def test_a_delete_of_unknown_outcome_does_not_end_the_janitor(cache: SessionCache) -> None:
    janitor = Janitor(cache._tiers, every=0.01)
    turns, again = 0, asyncio.Event()

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise OutcomeUnknownError
        again.set()

    janitor.turn = turn  # type: ignore[method-assign]
    running = asyncio.ensure_future(janitor.run())
    await asyncio.wait({running, waiting := asyncio.ensure_future(again.wait())}, return_when="FIRST_COMPLETED")
    assert again.is_set()
    for task in (running, waiting):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
