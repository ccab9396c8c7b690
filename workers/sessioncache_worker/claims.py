"""Claims: the scopes that one worker has claimed, renewed while it works on them, and given back otherwise (R9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sessioncache.hot.backlog import Backlog

Claimed = tuple[int, str]
"""Bucket and member of a scope."""


class HeldClaims:
    """The scopes that a worker has claimed and is not done with."""

    def __init__(self, backlog: Backlog, worker: str, lease: float) -> None:
        self._backlog = backlog
        self._worker = worker
        self._lease = lease
        self._held: dict[Claimed, None] = {}
        self.due: Callable[[Iterable[int], float], None] = lambda buckets, seconds: None
        """Called with buckets of which something is due in some seconds."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, scopes: Iterable[Claimed]) -> None:
        """Record what was claimed."""
        self._held.update(dict.fromkeys(scopes))

    def done_with(self, scopes: Iterable[Claimed]) -> None:
        """Record that nothing is left to be done: scopes were acknowledged, or are not dirty."""
        for scope in scopes:
            self._held.pop(scope, None)

    def of(self, scopes: Iterable[Claimed]) -> list[Claimed]:
        """Those of some scopes that are still held."""
        return [scope for scope in scopes if scope in self._held]

    async def renew(self) -> None:
        """Keep what is held for another lease."""
        await self._backlog.renew(self._worker, list(self._held), self._lease)

    async def put_off(self, scopes: Sequence[Claimed], seconds: float) -> None:
        """Let scopes be due again in some seconds; until then no worker claims them."""
        # Not held any more, even if Redis cannot be reached: then the claims expire with their lease.
        self.done_with(scopes)
        await self._backlog.renew(self._worker, scopes, seconds)
        self.due({bucket for bucket, _ in scopes}, seconds)

    async def give_back(self, scopes: Sequence[Claimed] | None = None) -> None:
        """Let other workers have scopes (default: all that are held) at once."""
        await self.put_off(list(self._held) if scopes is None else scopes, 0.0)
