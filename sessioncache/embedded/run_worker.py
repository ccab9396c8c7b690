"""The worker of a data folder: brings the schema up to date, then becomes the worker.

``python -m sessioncache.embedded.run_worker --redis URL --database URL``
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Does not return: the process becomes the worker, with the same id and the lock it holds."""
    from sessioncache.durable.migrate import upgrade_database

    asyncio.run(upgrade_database(arguments[arguments.index("--database") + 1]))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "sessioncache_worker", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
