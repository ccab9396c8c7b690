"""What an agent did: every call is noted before it is made, and its outcome after; the file outlives the process.

See cells.py for what is noted of a value.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from sessioncache import OutcomeUnknownError, PartlyAppliedError, SessionCacheError

OK, UNKNOWN, REFUSED, BROKEN = "ok", "unknown", "refused", "broken"
NEVER = (inf, inf)


class Failed(Exception):  # noqa: N818 - the outcome is in the journal, the actor only goes on
    """A call did not succeed."""


class Journal:
    """Appends to the file of one agent; every line is with the kernel before the agent goes on."""

    def __init__(self, path: Path, run: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._run = run
        self._next = 0

    def note(self, **what: Any) -> None:
        """Write one line."""
        line = json.dumps({"run": self._run, "t": time.monotonic(), **what}) + "\n"
        os.write(self._file, line.encode())

    @contextmanager
    def call(self, **what: Any) -> Iterator[dict[str, Any]]:
        """Note a call, its outcome, and what the block puts into the dict; raises Failed for the library's errors."""
        self._next += 1
        number = self._next
        self.note(call=number, **what)
        told: dict[str, Any] = {}
        try:
            yield told
        except (OutcomeUnknownError, PartlyAppliedError) as error:
            self.note(end=number, outcome=UNKNOWN, error=type(error).__name__)
            raise Failed from error
        except SessionCacheError as error:
            self.note(end=number, outcome=REFUSED, error=type(error).__name__)
            raise Failed from error
        except Exception as error:
            self.note(end=number, outcome=BROKEN, error=repr(error))
            raise
        self.note(end=number, outcome=OK, **told)


@dataclass(slots=True)
class Call:
    """One call as the journal tells it; without an outcome (the agent was killed) it is unknown."""

    what: dict[str, Any]
    at: int
    """The line at which it began."""
    outcome: str = UNKNOWN
    error: str = ""
    ended: int = 1 << 62
    """The line at which its outcome was known."""
    ended_at: float = inf
    """The time of that."""
    taken: bool = True
    """Of a record: whether it was."""
    shown: tuple[float, float] = NEVER
    """When a flush() that showed it to be durable began and ended."""


@dataclass(slots=True)
class Story:
    """A whole journal."""

    calls: list[Call] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)
    """What was read, with the line (``at``) and the time (``t``)."""
    stored: list[dict[str, Any]] = field(default_factory=list)
    """What SQL had after a flush(), likewise: ``stored`` tells cells, ``since`` when the flush() had returned."""


def read_story(path: Path) -> Story:
    """Read a journal; a line that a killed agent left unfinished is left out."""
    story, running = Story(), {}
    for at, text in enumerate(path.read_text().splitlines() if path.exists() else []):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if "call" in line:
            call = running[line["run"], line["call"]] = Call(line, at)
            story.calls.append(call)
        elif "end" in line:
            call = running[line["run"], line["end"]]
            call.outcome, call.error, call.ended = line["outcome"], line.get("error", ""), at
            call.ended_at, call.taken = line["t"], line.get("taken", True)
        elif "seen" in line:
            story.seen.append(line | {"at": at})
        elif "stored" in line:
            story.stored.append(line | {"at": at})
    _mark_durable(story)
    return story


def _mark_durable(story: Story) -> None:
    """A flush() that succeeded covers what its process was told before it, but for what an earlier one gave up."""
    given_up: dict[int, int] = {}
    for flush in [call for call in story.calls if call.what.get("flush")]:
        run = flush.what["run"]
        if flush.outcome != OK:
            if flush.error == "WriteLostError":
                given_up[run] = flush.ended
            continue
        for call in story.calls:
            if call.what["run"] == run and given_up.get(run, -1) < call.at and call.ended < flush.at:
                call.shown = min(call.shown, (flush.what["t"], flush.ended_at)) if call.outcome == OK else NEVER
