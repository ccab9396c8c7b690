"""Synchronous watches."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from sessioncache import watch as asynchronous
from sessioncache.errors import ConfigurationError
from sessioncache.sync.likeness import like, without_async
from sessioncache.sync.portal import portal
from sessioncache.watch import Change


class Watch:
    __doc__ = without_async(asynchronous.Watch.__doc__)

    def __init__(self, watch: asynchronous.Watch) -> None:
        self._watch = watch
        self._portal = portal()

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        self._check()
        self._portal.call(self._watch.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if portal() is self._portal:
            self.close()

    def __next__(self) -> Change:
        self._check()
        try:
            return self._portal.call(self._watch.next())
        except StopAsyncIteration:
            raise StopIteration from None

    @like(asynchronous.Watch.aclose)
    def close(self) -> None:
        self._check()
        self._portal.call(self._watch.aclose())

    def _check(self) -> None:
        if portal() is not self._portal:
            raise ConfigurationError("this watch began before this process was forked: begin one here")
