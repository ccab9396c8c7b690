"""A synchronous cache presented as an asynchronous one, so that the conformance suite can be run over it.

What is asynchronous there runs in a thread here; what the asynchronous API answers at once is called as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

_AT_ONCE = {"bound_to", "user_scope", "app_scope", "namespace", "bind", "watch"}
_BLOCKS = {"edit", "lease", "resume"}
_END = object()


class AsyncOverSync:
    """A cache, session, scope or namespace of the synchronous API."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, "close" if name == "aclose" else name)
        if not callable(found):
            return found
        if name in _AT_ONCE:
            return lambda *args, **named: _presented(found(*args, **named))
        if name == "batch":
            return lambda *args, **named: BatchOverSync(found(*args, **named))
        if name in _BLOCKS:
            return lambda *args, **named: AsyncOverSync(found(*args, **named))
        if name == "iter_sessions":
            return lambda *args, **named: _iterate(found, args, named)
        return lambda *args, **named: _in_thread(found, args, named)

    def __repr__(self) -> str:
        return repr(self._inner)

    async def __aenter__(self) -> Any:
        return _presented(await asyncio.to_thread(self._inner.__enter__))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return await asyncio.to_thread(self._inner.__exit__, kind, error, trace)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        item = await asyncio.to_thread(next, self._inner, _END)
        if item is _END:
            raise StopAsyncIteration
        return item


class BatchOverSync:
    """A batch of the synchronous API, whose calls are noted at once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return lambda *args, **named: BatchOverSync(found(*map(_bare, args), **named))

    @property
    def error(self) -> Any:
        """Why a call that was noted failed."""
        return self._inner.error

    def result(self) -> Any:
        """What a call that was noted came to."""
        return _presented(self._inner.result())

    async def __aenter__(self) -> BatchOverSync:
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._inner.__exit__, kind, error, trace)


def _bare(argument: Any) -> Any:
    return argument._inner if isinstance(argument, AsyncOverSync) else argument


class Opening:
    """A synchronous cache that is opened and closed in a thread."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._cache: Any = None

    async def __aenter__(self) -> AsyncOverSync:
        self._cache = await asyncio.to_thread(self._connect)
        return AsyncOverSync(self._cache)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._cache.close)


async def _in_thread(call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return _presented(await asyncio.to_thread(call, *args, **named))


async def _iterate(call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> AsyncIterator[Any]:
    items = await asyncio.to_thread(lambda: iter(call(*args, **named)))
    while (item := await asyncio.to_thread(next, items, _END)) is not _END:
        yield _presented(item)


def _presented(result: Any) -> Any:
    """Objects of the synchronous API are presented too; all else is what it is."""
    if type(result) is tuple:
        return tuple(map(_presented, result))
    return AsyncOverSync(result) if type(result).__module__.startswith("sessioncache.sync") else result
