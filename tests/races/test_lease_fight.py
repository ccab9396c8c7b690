"""Two processes fight for a lease; one is stopped past it and continued, again and again: nothing of a loser lands."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sessioncache.primitives.revisions import DIGITS, decode_revision
from tests.helpers import Process, Urls, connect, drain, raw, scope_key, session, stored_values
from tests.waiting import wait_until

TTL = 0.4


class Journaled:
    """One of the two processes, and what it noted."""

    def __init__(self, stack: ExitStack, urls: Urls, name: str, folder: Path) -> None:
        self.name, self._path = name, folder / f"{name}.jsonl"
        self._path.touch()
        options = (name, str(TTL), str(self._path), str(folder / "stop"))
        self.process = stack.enter_context(Process("tests.races.lease_fighter", *urls, *options))

    def noted(self, what: str = "") -> list[list[Any]]:
        """Notes of one kind, or all; a line that is being written is left out."""
        lines = self._path.read_text().split("\n")[:-1]
        return [note for note in map(json.loads, lines) if what in ("", note[0])]

    @property
    def turn(self) -> int:
        """The turn that it has, as it believes; 0: none."""
        notes = self.noted()
        return int(notes[-1][1]) if notes and notes[-1][0] in ("holding", "acknowledged") else 0


def holder_of(both: list[Journaled]) -> Journaled | None:
    """Who has the newest turn, if it is still at it."""
    latest = max(both, key=lambda one: max((note[1] for note in one.noted()), default=0))
    return latest if latest.turn else None


def stop_past_the_lease(both: list[Journaled]) -> None:
    """Stop the holder until the other one writes in its place, then let it go on."""
    wait_until(lambda: holder_of(both), 20, "one of them holds the lease")
    victim = holder_of(both) or both[0]
    rival = both[1 - both.index(victim)]
    victim.process.send(signal.SIGSTOP)
    victim.process.wait_until_stopped()
    last = max((note[1] for note in victim.noted()), default=0)
    wait_until(lambda: rival.turn > last, 20, f"{rival.name} took over")
    before = len(victim.noted())
    victim.process.send(signal.SIGCONT)
    wait_until(lambda: len(victim.noted()) > before, 20, f"{victim.name} went on")


def fight(urls: Urls, folder: Path, seconds: float) -> list[Journaled]:
    """What the two noted."""
    with ExitStack() as stack:
        both = [Journaled(stack, urls, name, folder) for name in ("one", "two")]
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            stop_past_the_lease(both)
        (folder / "stop").touch()
        for one in both:
            code, _, err = one.process.finish()
            assert code == 0, err
    return both


@pytest.mark.parametrize("seconds", [6, pytest.param(30, marks=pytest.mark.slow)])
async def test_no_write_of_a_loser_lands(urls: Urls, tmp_path: Path, seconds: float) -> None:
    async with connect(urls) as cache:
        await cache.create("ada", session_id="s1")
        fighters = await asyncio.to_thread(fight, urls, tmp_path, seconds)
        state = dict((await cache.get("ada", "s1")).state)
    acknowledged = {tuple(n[1:]): f.name for f in fighters for n in f.noted("acknowledged")}
    refused = [(f.name, *n[1:]) for f in fighters for n in f.noted("refused")]
    unknown = {(f.name, *n[1:]) for f in fighters for n in f.noted("unknown")}
    assert len(refused) >= seconds / 6, "those that were stopped went on to write, and were refused"
    for count, (name, last) in turns(state).items():
        own = [number for (turn, number), who in acknowledged.items() if turn == count and who == name]
        assert last == max(own) or (name, count, last) in unknown, "all that was acknowledged is there, and no more"
    for name, count, number in refused:
        assert state.get(f"turn-{count}", [name, 0])[1] < number
    assert {(count, who) for (count, _), who in acknowledged.items()} == {
        (count, name) for count, (name, _) in turns(state).items()
    }, "one runner a turn"
    assert_turns_are_apart(urls)
    await drain(urls)
    assert stored_values(urls.database, session("ada", "s1")) == state


def turns(state: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Count of a turn -> its runner and the number of its last write."""
    return {int(key[5:]): (value[0], value[1]) for key, value in state.items() if key.startswith("turn-")}


def assert_turns_are_apart(urls: Urls) -> None:
    """No turn's last write came after the first write of a later turn."""
    with raw(urls.redis) as client:
        fields: dict[Any, Any] = client.hgetall(scope_key(session("ada", "s1")))
    at = {name[1:].decode(): decode_revision(value[:DIGITS]) for name, value in fields.items() if name[:1] == b"="}
    counts = sorted(int(key[5:]) for key in at if key.startswith("turn-"))
    for earlier, later in pairwise(counts):
        assert at[f"turn-{earlier}"] < at[f"first-{later}"]
