"""The results of benchmarks: one JSON file that every run merges its figures into.

A key is a figure: its median, with its quartiles as ``KEY_low`` and ``KEY_high``.  One that could not be measured is
null, with the reason as ``KEY_reason``.  Merging keeps what other runs measured.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measuring import Spread

DEFAULT = Path(__file__).resolve().parent / "results.json"
"""The file of this checkout."""
_DIGITS = 4
_SPREAD = ("_low", "_high")
_REASON = "_reason"

Figures = Mapping[str, Any]
"""Key -> a JSON value."""


# ---- pure


def figure(key: str, spread: Spread) -> dict[str, Any]:
    """A figure with its quartiles."""
    return {key: spread.middle, f"{key}_low": spread.low, f"{key}_high": spread.high}


def missing(keys: Iterable[str], reason: str) -> dict[str, Any]:
    """Figures that could not be measured, each with the reason."""
    return {name: value for key in keys for name, value in ((key, None), (key + _REASON, reason))}


def merged(before: Figures, new: Figures) -> dict[str, Any]:
    """What was measured before, and what is new; sorted by key.

    A figure that is new takes its old spread or its old reason with it.
    """
    kept = {key: value for key, value in before.items() if not _goes_with(key, new)}
    both = kept | {key: _rounded(value) for key, value in new.items()}
    return dict(sorted(both.items()))


def _goes_with(key: str, new: Figures) -> bool:
    return any(key.endswith(suffix) and key.removesuffix(suffix) in new for suffix in (*_SPREAD, _REASON))


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value


def machine() -> dict[str, Any]:
    """Where it was measured."""
    return {
        "machine_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine_python": platform.python_version(),
        "machine_system": f"{platform.system()} {platform.machine()}",
    }


def measured(part: str, before: str, after: str) -> dict[str, str]:
    """When and of which code a part was measured: figures of code that changed meanwhile are of neither."""
    code = before if before == after else f"{before}, then {after}: measure again"
    return {f"{part}_measured_at": datetime.now(UTC).isoformat(timespec="seconds"), f"{part}_code": code}


def code_version() -> str:
    """The commit of this checkout, with ``-dirty`` where something is not committed; empty where there is no git."""
    command = ["git", "describe", "--always", "--dirty"]
    with suppress(OSError):
        done = subprocess.run(command, cwd=DEFAULT.parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()
    return ""


# ---- the file


def read(path: Path = DEFAULT) -> dict[str, Any]:
    """All figures; none where there is no file yet."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def record(values: Figures, path: Path = DEFAULT) -> None:
    """Merge figures into the file, which is whole at any time, whoever else records at once."""
    with _alone(path.parent):
        text = json.dumps(merged(read(path), values), indent=2, allow_nan=False)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(text + "\n")
        new.replace(path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
