"""The model: what must be in both tiers after a replay, computed from the file alone.  Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sessioncache.replay.recording import Recording
from sessioncache.replay.turns import apply_turn, turns


def run_id(recording: Recording, repeat: int) -> str:
    """The session id of one repeat of a recorded session."""
    return f"{recording.session}#{repeat}"


@dataclass(slots=True)
class Model:
    """Keys without prefix, by scope."""

    sessions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """(user, session id) -> private keys."""
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    app: Counter[str] = field(default_factory=Counter)

    def add(self, recording: Recording, repeat: int) -> None:
        """One more session has run to its end."""
        session_id, merged = run_id(recording, repeat), dict[str, Any]()
        for turn in turns(recording, session_id, ""):
            apply_turn(turn, merged)
            self.app.update({key.removeprefix("app:"): by for key, by in turn.increment.items()})
        user = self.users.setdefault(recording.user, {})
        user.update({key.removeprefix("user:"): value for key, value in merged.items() if key.startswith("user:")})
        plain = {key: value for key, value in merged.items() if not key.startswith(("user:", "temp:"))}
        self.sessions[recording.user, session_id] = plain

    @classmethod
    def of(cls, recordings: Iterable[Recording], repeats: int) -> Model:
        """What is there after `repeats` passes over the file."""
        model = cls()
        for recording in recordings:
            for repeat in range(repeats):
                model.add(recording, repeat)
        return model


def differences(expected: dict[str, Any], found: dict[str, Any]) -> int:
    """Keys that are missing, too many, or of another value or type (1 is not 1.0, nor True)."""
    keys = expected.keys() | found.keys()
    return sum(key not in expected or key not in found or not same(expected[key], found[key]) for key in keys)


def same(one: Any, other: Any) -> bool:
    """Equal, types and order of keys included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
