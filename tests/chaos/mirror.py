"""Mirrors: what somebody knows of the shared scopes who reads only what a watch tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from sessioncache import Change, Scope, SessionCache, SessionCacheError
from tests.chaos.cast import APP, open_cache, user_scopes
from tests.helpers import Urls, connect
from tests.waiting import wait_until_async

_AGAIN = 0.1
"""Seconds after which a reading that failed is tried again."""
_PATIENCE = 20.0
"""Seconds after the last write within which every mirror must show what there is."""


class Mirror:
    """One scope; a change that is missed without being told would leave it wrong for ever."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.told = 0
        self.missed = 0

    async def follow(self) -> None:
        """Read the scope once, and from then on what is told to have changed; until cancelled."""
        changes = self._scope.watch()
        await _again(changes.begin)
        await _again(self._scope.refresh)
        async for change in changes:
            self.told += 1
            self.missed += change.missed
            await _again(lambda change=change: self._read(change))  # type: ignore[misc]

    async def refresh(self) -> None:
        """Read the scope once more."""
        await _again(self._scope.refresh)

    async def _read(self, change: Change) -> None:
        if change.missed:
            await self._scope.refresh()
        for key in change.keys:
            await self._scope.get(key)

    @property
    def shown(self) -> dict[str, Any]:
        """What the mirror shows."""
        return dict(self._scope.state)


class Mirrors:
    """Mirrors of the app and of all users, by one process, over the agents' way to the servers."""

    def __init__(self, urls: Urls) -> None:
        self._urls = urls
        self._mirrors: dict[str, Mirror] = {}
        self._cache: SessionCache | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._cache = await open_cache(*self._urls, timeout=5.0)
        self._mirrors = {name: Mirror(scope) for name, scope in _scopes(self._cache).items()}
        self._tasks = [asyncio.create_task(mirror.follow()) for mirror in self._mirrors.values()]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._cache is not None:
            await self._cache.aclose()

    @property
    def told(self) -> int:
        """Changes that were told."""
        return sum(mirror.told for mirror in self._mirrors.values())

    @property
    def missed(self) -> int:
        """Changes that were told to be missed."""
        return sum(mirror.missed for mirror in self._mirrors.values())

    async def refresh(self) -> None:
        """Read every scope once more: of what SQL forgets while a scope is not hot nobody is told."""
        for mirror in self._mirrors.values():
            await mirror.refresh()

    async def problems(self, urls: Urls) -> list[str]:
        """Mirrors that do not show what there is, though nothing is written any more."""
        problems = [f"a watch ended with {task.exception()!r}" for task in self._tasks if task.done()]
        async with connect(urls, app=APP) as cache:
            for name, scope in _scopes(cache).items():
                await scope.refresh()
                there = dict(scope.state)
                try:
                    await wait_until_async(
                        lambda name=name, there=there: self._mirrors[name].shown == there, _PATIENCE, name
                    )
                except TimeoutError:
                    shown = self._mirrors[name].shown
                    keys = sorted(key for key in shown | there if shown.get(key) != there.get(key))
                    problems.append(f"a watch of the {name} missed {len(keys)} keys without a word: {keys[:3]}")
        return problems


def _scopes(cache: SessionCache) -> dict[str, Scope]:
    users = {f"user {user}": cache.user_scope(user) for user in user_scopes()}
    return {"app": cache.app_scope(), **users}


async def _again(read: Callable[[], Awaitable[object]]) -> None:
    """Until it succeeds."""
    while True:
        try:
            await read()
            return
        except SessionCacheError:
            await asyncio.sleep(_AGAIN)
