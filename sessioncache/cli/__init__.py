"""The command ``sessioncache``."""

from sessioncache.cli.main import main

__all__ = ["main"]
