"""Recorded sessions: JSON lines, plain or gzipped, one session each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from sessioncache.errors import ConfigurationError

SAMPLE = files(__package__) / "sample.jsonl"
"""The sample that comes with the package."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that an agent made."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One message of a session."""

    role: str
    content: str | None
    calls: list[Call]
    tool: str | None
    """The tool whose result `content` is."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded session."""

    session: str
    user: str
    steps: list[Step]


def read_recordings(path: Path) -> list[Recording]:
    """The sessions of a file; ConfigurationError with the line of what is not in the expected form."""
    found: dict[str, Recording] = {}
    for number, line in _lines(path):
        try:
            recording = _parse(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{path}, line {number}: not a recorded session ({type(error).__name__})"
            ) from None
        if recording.session in found:
            raise ConfigurationError(f"{path}, line {number}: the session {recording.session!r} is there twice")
        found[recording.session] = recording
    if not found:
        raise ConfigurationError(f"{path} holds no sessions")
    return list(found.values())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            yield from ((n, line) for n, line in enumerate(file, 1) if line.strip())
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConfigurationError(f"{path} cannot be read: {type(error).__name__}") from error


def _parse(record: dict[str, Any]) -> Recording:
    steps = [_step(step) for step in record["steps"]]
    session, user = record["session"], record["user"]
    if not (isinstance(session, str) and session and isinstance(user, str) and steps):
        raise ValueError
    return Recording(session, user, steps)


def _step(step: dict[str, Any]) -> Step:
    content = step.get("content")
    if step["role"] not in ("user", "assistant", "tool") or not isinstance(content, str | None):
        raise ValueError
    calls = [Call(str(call["name"]), dict(call["arguments"])) for call in step.get("tool_calls") or []]
    return Step(step["role"], content, calls, step.get("name"))
