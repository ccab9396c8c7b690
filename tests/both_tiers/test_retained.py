"""Retention is noted without holding up what is hot; no duty of the janitor starves another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from sessioncache_worker.janitor import Janitor

from sessioncache import DurableTierUnavailableError, OutcomeUnknownError, SessionCache
from sessioncache.hot.dead_letters import DeadLetters
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


DUTIES = ["forget_silent", "expire", "retry_letters", "purge", "compare_sample"]


def recorded(janitor: Janitor, failing: dict[str, Exception]) -> list[str]:
    """What the janitor does; some duties fail."""
    done: list[str] = []

    def duty(name: str) -> Any:
        async def do() -> int:
            done.append(name)
            if name in failing:
                raise failing[name]
            return 0

        return do

    for name in [*DUTIES, "restore"]:
        setattr(janitor, name, duty(name))
    return done


async def test_an_outage_of_sql_leaves_the_janitor_its_other_duties(cache: SessionCache) -> None:
    janitor = Janitor(cache._tiers, every=1)
    away = DurableTierUnavailableError()
    done = recorded(janitor, {name: away for name in DUTIES if name != "forget_silent"})
    await janitor.turn()
    assert done == DUTIES


async def test_a_duty_that_fails_is_reported_and_starves_no_other(cache: SessionCache) -> None:
    janitor = Janitor(cache._tiers, every=0.01)
    done = recorded(janitor, {"restore": ValueError("first"), "expire": ValueError("second")})
    with pytest.raises(ValueError, match="first"):
        await janitor.run()
    assert done == ["restore", *DUTIES]


async def test_no_letter_is_tried_again_while_sql_is_away(cache: SessionCache, monkeypatch: pytest.MonkeyPatch) -> None:
    janitor = Janitor(cache._tiers, every=1)
    tried: list[object] = []

    async def away() -> int:
        raise DurableTierUnavailableError

    async def retry(*given: object) -> int:
        tried.append(given)
        return 0

    monkeypatch.setattr(DeadLetters, "retry_due", retry)
    await janitor.retry_letters()
    assert len(tried) == 1
    monkeypatch.setattr(cache._tiers.durable, "clock", away)
    with pytest.raises(DurableTierUnavailableError):
        await janitor.retry_letters()
    assert len(tried) == 1
