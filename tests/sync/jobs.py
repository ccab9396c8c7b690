"""What processes of multiprocessing do, by name, so that those can find it which are not forked."""

from __future__ import annotations

from typing import Any

from sessioncache.sync import SessionCache


def count(cache: SessionCache, times: int) -> Any:
    """Increment a counter of the session so many times; the last number."""
    session = cache.get("ada", "s1")
    return [session.increment("n") for _ in range(times)][-1]
