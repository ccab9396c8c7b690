"""The command ``sessioncache``, of this checkout."""

from __future__ import annotations

import sys

from sessioncache.cli import main

if __name__ == "__main__":
    sys.exit(main())
