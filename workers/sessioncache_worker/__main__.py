"""``python -m sessioncache_worker``: the same as ``sessioncache-worker``."""

from __future__ import annotations

import sys

from sessioncache_worker.cli import main

if __name__ == "__main__":
    sys.exit(main())
