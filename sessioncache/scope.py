"""Shared scopes: the keys of a user, or of an app, reached without a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessioncache.coordination.tiers import Tiers
from sessioncache.handle.base import Handle
from sessioncache.handle.unflushed_writes import UnflushedWrites
from sessioncache.hot.layout import Place
from sessioncache.primitives.names import Key, KeyScope, check_name


class Scope(Handle):
    """The shared state of a user or of an app; its keys are written without prefix."""

    def __init__(self, tiers: Tiers, open_unflushed: Callable[[], UnflushedWrites], place: Place) -> None:
        super().__init__(tiers, open_unflushed)
        self._place = {KeyScope.SESSION: place}

    @property
    def place(self) -> Place:
        """The address of the scope in both tiers."""
        return self._place[KeyScope.SESSION]

    def _split(self, key: object) -> Key:
        return Key(KeyScope.SESSION, check_name("a key", key, empty=True))

    def _full(self, scope: KeyScope, name: str) -> str:
        return name

    def _places(self) -> Mapping[KeyScope, Place]:
        return self._place
