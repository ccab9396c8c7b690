"""Turns: what an agent writes at each step of a recorded session.  Pure: no I/O.

What is learned of the user goes under `user:` keys that bear the session, so that the expected value does not depend on
the order in which sessions ran; counters go under `app:` keys; the pending tool call is `temp:`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sessioncache.replay.recording import Recording, Step


@dataclass(slots=True)
class Turn:
    """The writes of one step."""

    update: dict[str, Any]
    """Set in one atomic write; plain, `user:` and `temp:` keys."""
    delete: list[str] = field(default_factory=list)
    """Deleted in the same write."""
    append: dict[str, Any] = field(default_factory=dict)
    increment: dict[str, int] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """Entries that it changes on their way to SQL."""
        keys = [*self.update, *self.delete, *self.append, *self.increment]
        return sum(not key.startswith("temp:") for key in keys)


def turns(recording: Recording, session_id: str, marker: str) -> Iterator[Turn]:
    """The turns of one run of a session; `marker` goes into every `temp:` value and nowhere else."""
    for number, step in enumerate(recording.steps, 1):
        turn = Turn({"step": number}, increment={"app:steps": 1, f"app:steps:{step.role}": 1})
        if step.content is not None:
            turn.update["last_message"] = {"role": step.role, "content": step.content}
        if step.role == "tool":
            _take_result(turn, step, number, session_id)
        if step.calls:
            _take_calls(turn, step, number, marker)
        if number == len(recording.steps):
            turn.update["user:sessions:" + session_id] = {"steps": number}
        yield turn


def _take_calls(turn: Turn, step: Step, number: int, marker: str) -> None:
    turn.update["waiting_for"] = [call.name for call in step.calls]
    pending = [{"name": call.name, "arguments": call.arguments} for call in step.calls]
    turn.update["temp:pending"] = {"marker": f"{marker}-{number}", "calls": pending}
    turn.increment["app:tool_calls"] = len(step.calls)


def _take_result(turn: Turn, step: Step, number: int, session_id: str) -> None:
    result = parse_result(step.content or "")
    turn.update[f"tool:{number}:{step.tool}"] = result
    turn.delete += ["waiting_for", "temp:pending"]
    turn.append["tools_used"] = step.tool
    turn.increment[f"app:tool:{step.tool}"] = 1
    if step.tool == "get_user_details":
        turn.update["user:details:" + session_id] = result


def parse_result(text: str) -> Any:
    """A tool's result, parsed where it is JSON; the text itself where it is not."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except ValueError:
        return text


def _no_number(name: str) -> float:
    raise ValueError(name)


def apply_turn(turn: Turn, state: dict[str, Any]) -> None:
    """Bring a session's merged state to what it must be after a turn; `app:` counters excepted."""
    state.update(turn.update)
    for key in turn.delete:
        state.pop(key, None)
    for key, item in turn.append.items():
        state[key] = [*state.get(key, []), item]
