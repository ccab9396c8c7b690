"""What an import costs: fresh interpreters in alternating rounds, ours against ``import redis.asyncio``.

``python benchmarks/start.py [--rounds N] [--json]``: `import_ratio` is that of ``import sessioncache``,
`import_class_ratio` that of ``from sessioncache import SessionCache``, which brings the Redis client along.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import Spread, alternate, console, options, print_json, ratios, table

REDIS = "import redis.asyncio"
IMPORTS = {
    "interpreter": "",
    "redis": REDIS,
    "import": "import sessioncache",
    "import_class": "from sessioncache import SessionCache",
    "import_sync_class": "from sessioncache.sync import SessionCache",
    "import_sqlalchemy": "import sqlalchemy.ext.asyncio",
}
"""Beginning of the keys of its figures -> what is run."""
_ROUNDS = 15
# An installed package is compiled; a checkout is, too, where nothing forbids it.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def seconds(code: str) -> float:
    """How long a new interpreter takes to start, run this and end."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=_ENVIRONMENT)
    if await process.wait():
        raise RuntimeError(f"a new interpreter cannot {code}")
    return time.perf_counter() - began


async def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds by name and round; the first time, when files are compiled and read from disk, does not count."""
    for code in IMPORTS.values():
        await seconds(code)
    return await alternate({name: partial(seconds, code) for name, code in IMPORTS.items()}, rounds)


def figures(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Milliseconds, and ratios to redis-py."""
    told = {f"{name}_ms": Spread.of(taken).middle * 1_000 for name, taken in found.items()}
    return told | {
        f"{name}_ratio": ratios(found[name], found["redis"]).middle for name in found if name.startswith("import")
    }


async def main() -> None:
    """Measure, and tell."""
    chosen = options((__doc__ or "").split("\n")[0]).parse_args()
    found = await measure(chosen.rounds or _ROUNDS)
    rows = [
        (
            IMPORTS[name] or "(nothing)",
            Spread.of([1_000 * one for one in taken]).shown(0),
            ratios(taken, found["redis"]).shown(),
        )
        for name, taken in found.items()
    ]
    console().print(table("Starting a Python that imports", ("what", "ms", f"÷ {REDIS}"), rows))
    if chosen.json:
        print_json(figures(found))


if __name__ == "__main__":
    asyncio.run(main())
