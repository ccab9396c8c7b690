"""What all classes of the suite share: how a test gets its cache, and how it runs."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

_FACTS = (
    "id",
    "org",
    "app",
    "user",
    "title",
    "created_at",
    "updated_at",
    "message_count",
    "token_total",
    "forked_from",
)

Cache = Any
"""Whatever has the names of `SessionCache`."""


class OpenCache(Protocol):
    """Opens a cache of the backend under test; all calls within one test are for the same backend."""

    def __call__(self, *, app: str, org: str) -> AbstractAsyncContextManager[Cache]: ...


class Conformance:
    """Base of the classes of the suite.

    A test is a method ``async def test_…(self, cache)``: its cache is opened for it, under an org of its own, so that
    tests may share a backend without meeting each other.  Each becomes a plain function that runs its own event loop
    and asks for the fixture ``open_cache``; other parameters are fixtures and parameters of pytest as usual.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _plain(test))


def _plain(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as a function that pytest runs without a plugin."""
    parameters = list(inspect.signature(test).parameters.values())

    def run(self: Conformance, open_cache: OpenCache, **others: Any) -> None:
        async def with_cache() -> None:
            async with open_cache(app="app", org=f"org {secrets.token_hex(6)}") as cache:
                given = {"open_cache": open_cache, "cache": cache} | others
                await test(self, **{name: given[name] for name in wanted})

        asyncio.run(with_cache())

    wanted = [parameter.name for parameter in parameters[1:]]
    asked = [parameter for parameter in parameters if parameter.name not in ("cache", "open_cache")]
    fixture = inspect.Parameter("open_cache", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    run.__module__ = test.__module__
    run.__dict__.update(vars(test))
    vars(run)["__signature__"] = inspect.Signature([asked[0], fixture, *asked[1:]])
    return run


def exact(value: Any) -> str:
    """A text that tells values apart which are equal to Python: types, signs, the order of keys."""
    return repr(value)


def facts(one: Any) -> dict[str, Any]:
    """What a session, or its line in a list, says of itself."""
    return {name: getattr(one, name) for name in _FACTS}


async def raised(kind: type[Exception], call: Awaitable[Any]) -> Any:
    """The error of this kind that a call must raise."""
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, and nothing was raised")
