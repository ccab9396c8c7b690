"""An agent process: runs halves of sessions that it is given on standard input, and reports on standard output.

One JSON object a line: first the options, then orders {"recording": index, "repeat": r, "half": 0 or 1} in;
{"done": [index, r, half], …} or {"failed": …} out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessioncache.cache import SessionCache
from sessioncache.errors import SessionCacheError
from sessioncache.replay.model import differences, run_id
from sessioncache.replay.recording import Recording, read_recordings
from sessioncache.replay.turns import Turn, apply_turn, turns
from sessioncache.session import Session


@dataclass(slots=True)
class Tally:
    """What one half of a session took."""

    turns: int = 0
    entries: int = 0
    mismatches: int = 0
    writes: list[float] = field(default_factory=list)
    """Seconds of each write call."""
    reads: list[float] = field(default_factory=list)


class Agent:
    """Runs halves of recorded sessions, several at once."""

    def __init__(self, cache: SessionCache, recordings: list[Recording], marker: str) -> None:
        self._cache = cache
        self._recordings = recordings
        self._marker = marker

    async def run_half(self, index: int, repeat: int, half: int) -> Tally:
        """The first half creates the session; the second one finds it where another process left it."""
        recording = self._recordings[index]
        session_id = run_id(recording, repeat)
        all_turns = list(turns(recording, session_id, self._marker))
        middle = len(all_turns) // 2
        expected: dict[str, Any] = {}
        if half == 0:
            session = await self._cache.create(recording.user, session_id=session_id, title=recording.session)
        else:
            session = await self._cache.get(recording.user, session_id)
            for turn in all_turns[:middle]:
                apply_turn(turn, expected)
        tally = Tally()
        for turn in all_turns[middle:] if half else all_turns[:middle]:
            await _take_turn(session, turn, tally)
            apply_turn(turn, expected)
            await _read_back(session, expected, tally)
        return tally


async def _take_turn(session: Session, turn: Turn, tally: Tally) -> None:
    tally.turns += 1
    tally.entries += turn.entries
    await _timed(session.update(turn.update, delete=turn.delete), tally.writes)
    for key, item in turn.append.items():
        await _timed(session.append(key, item), tally.writes)
    for key, by in turn.increment.items():
        await _timed(session.increment(key, by), tally.writes)


async def _read_back(session: Session, expected: dict[str, Any], tally: Tally) -> None:
    """The merged state, compared with what this session's own turns must have left."""
    await _timed(session.refresh(), tally.reads)
    state = session.state
    own = {key for key in state if not key.startswith(("user:", "app:"))}
    tally.mismatches += differences(expected, {key: state[key] for key in own | (expected.keys() & state.keys())})


async def _timed(call: Any, into: list[float]) -> None:
    began = time.perf_counter()
    await call
    into.append(time.perf_counter() - began)


async def serve() -> None:
    """Read options, then orders, from standard input until it ends."""
    lines = await _standard_input()
    options = json.loads(await lines.readline())
    recordings = read_recordings(Path(options["file"]))
    installation = {name: options[name] for name in ("prefix", "buckets")}
    places = options["redis"], options["database"]
    async with SessionCache.connect(*places, app=options["app"], timeout=30, **installation) as cache:
        agent = Agent(cache, recordings, options["marker"])
        running: set[asyncio.Task[None]] = set()
        while line := await lines.readline():
            task = asyncio.ensure_future(_report(agent, json.loads(line)))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)


async def _report(agent: Agent, order: dict[str, Any]) -> None:
    place = (order["recording"], order["repeat"], order["half"])
    try:
        tally = await agent.run_half(*place)
    except SessionCacheError as error:
        answer: dict[str, Any] = {"failed": place, "error": f"{type(error).__name__}: {error}"}
    else:
        answer = {"done": place, "turns": tally.turns, "entries": tally.entries, "mismatches": tally.mismatches}
        answer |= {"writes": tally.writes, "reads": tally.reads}
    print(json.dumps(answer), flush=True)


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


if __name__ == "__main__":
    asyncio.run(serve())
