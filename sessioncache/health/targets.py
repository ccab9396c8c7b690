"""What is to be examined: the servers that are named, or the embedded default where it runs.  Starts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sessioncache.coordination.connecting import check_both
from sessioncache.embedded import folder


@dataclass(frozen=True, slots=True)
class Targets:
    """The tiers of one installation."""

    redis: str | None
    """URL; None: the embedded server does not run."""
    database: str
    embedded: str = ""
    """The data folder of the embedded default; empty for named servers."""


def find_targets(redis_url: str | None, database_url: str | None, data_dir: str) -> Targets:
    """The tiers behind URLs, or without any those in the data folder; ConfigurationError where one URL is missing."""
    if redis_url and database_url:
        return Targets(redis_url, database_url)
    check_both(redis_url, database_url)
    root = Path(data_dir).expanduser().resolve()
    socket = folder.find_socket(root)
    running = socket is not None and folder.answers(socket)
    return Targets(folder.redis_url(socket) if socket and running else None, folder.database_url(root), str(data_dir))
