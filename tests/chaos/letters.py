"""Letters: what Redis says that the database refused, compared with what was there before a fault."""

from __future__ import annotations

from contextlib import suppress

import redis

from tests.servers import RedisServer

_WHEN = 3
"""The place of the time in the text of a letter."""


class LetterWatch:
    """Finds the letters, and suspects, that came with a fault."""

    def __init__(self) -> None:
        self._before: dict[bytes, bytes] = {}
        self._began: int | None = None
        self._refusals: list[tuple[int, int]] = []
        """When the database refused something, by the clock of Redis (µs)."""

    def begin(self, server: RedisServer) -> None:
        """A fault begins."""
        self._before = _read(server)
        self._began = _now(server)

    def end(self, server: RedisServer, *, refuses: bool) -> list[str]:
        """A fault is over; scope and field of what was refused in it, or (`refuses`) may have been.

        What was refused while the database refused something may come back from an older file of Redis.
        """
        now = _now(server)
        if refuses:
            if self._began is not None and now is not None:
                self._refusals.append((self._began, now))
            return []
        found = {name: letter for name, letter in _read(server).items() if self._before.get(name) != letter}
        return sorted(name.decode(errors="replace") for name, letter in found.items() if not self._was_refused(letter))

    def _was_refused(self, letter: bytes) -> bool:
        when = int(letter.split(b"|")[_WHEN])
        return any(began <= when <= ended for began, ended in self._refusals)


def _read(server: RedisServer) -> dict[bytes, bytes]:
    """All letters and suspects, however old."""
    found: dict[bytes, bytes] = {}
    with suppress(redis.RedisError), server.client() as client:
        for key in client.scan_iter(match="sessioncache:*:dead", count=1000):
            found |= client.hgetall(key)
    return found


def _now(server: RedisServer) -> int | None:
    with suppress(redis.RedisError), server.client() as client:
        seconds, micros = client.time()
        return int(seconds) * 1_000_000 + int(micros)
    return None
