"""The lowest versions that pyproject.toml declares, as constraints for pip: ``python -m tests.floors``.

Of each dependency the series that its floor begins, with whatever fixes that series got.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

_EXTRAS = ("embedded", "sqlite", "postgres", "mcp", "testing")
"""What users install."""
_FLOOR = re.compile(r"([\w-]+)(?:\[[^]]*\])?>=([\d.]+)")


def floors() -> list[str]:
    """One constraint a dependency."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(one for extra in _EXTRAS for one in extras[extra])]
    return sorted({_series(*found.groups()) for one in declared if (found := _FLOOR.match(one))})


def _series(name: str, floor: str) -> str:
    *parts, last = floor.split(".")
    return f"{name}>={floor},<{'.'.join([*parts, str(int(last) + 1)])}"


if __name__ == "__main__":
    print(*floors(), sep="\n")
