"""Errors: one tree, each also the built-in error that a caller may already catch, with data as attributes."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import pytest

from sessioncache import errors
from sessioncache.errors import SessionCacheError
from sessioncache.testing.conformance.base import Cache, Conformance, raised

_BUILT_IN: list[tuple[type[Exception], type[Exception]]] = [
    (errors.SessionNotFoundError, LookupError),
    (errors.AmbiguousSessionError, LookupError),
    (errors.NoSessionError, LookupError),
    (errors.SessionExistsError, ValueError),
    (errors.InvalidValueError, ValueError),
    (errors.InvalidNameError, ValueError),
    (errors.TypeMismatchError, ValueError),
    (errors.LimitExceededError, ValueError),
    (errors.ConfigurationError, ValueError),
    (errors.HotTierUnavailableError, ConnectionError),
    (errors.DurableTierUnavailableError, ConnectionError),
    (errors.OutcomeUnknownError, TimeoutError),
    (errors.FlushTimeoutError, TimeoutError),
]


async def _stale(cache: Cache) -> SessionCacheError:
    made = await cache.create("ada", state={"a": 1})

    async def conflict() -> None:
        async with made.edit() as draft:
            await (await cache.get("ada", made.id)).set("a", 2)
            draft["a"] = 3

    error: SessionCacheError = await raised(errors.StaleSessionError, conflict())
    return error


async def _exists(cache: Cache) -> SessionCacheError:
    await cache.create("ada", session_id="s1")
    error: SessionCacheError = await raised(errors.SessionExistsError, cache.create("ada", session_id="s1"))
    return error


async def _missing(cache: Cache) -> SessionCacheError:
    error: SessionCacheError = await raised(errors.SessionNotFoundError, cache.get("ada", "s1"))
    return error


async def _no_value(cache: Cache) -> SessionCacheError:
    error: SessionCacheError = await raised(errors.InvalidValueError, cache.create("ada", state={"a": [math.nan]}))
    return error


async def _mismatch(cache: Cache) -> SessionCacheError:
    made = await cache.create("ada", state={"a": "secret text"})
    error: SessionCacheError = await raised(errors.TypeMismatchError, made.increment("a"))
    return error


_CASES: dict[str, tuple[Callable[[Cache], object], dict[str, object]]] = {
    "stale": (_stale, {"keys": ("a",)}),
    "exists": (_exists, {"session_id": "s1"}),
    "missing": (_missing, {"session_id": "s1"}),
    "no value": (_no_value, {"path": "a[0]", "type_name": "float"}),
    "mismatch": (_mismatch, {"key": "a"}),
}


class TestErrors(Conformance):
    """What can be caught, and what an error tells."""

    @pytest.mark.parametrize(("ours", "built_in"), _BUILT_IN, ids=lambda kind: kind.__name__)
    def test_an_error_is_also_the_built_in_one(self, ours: type[Exception], built_in: type[Exception]) -> None:
        assert issubclass(ours, built_in)
        assert issubclass(ours, SessionCacheError)

    @pytest.mark.parametrize("case", _CASES)
    async def test_an_error_carries_its_data_and_survives_pickling(self, cache: Cache, case: str) -> None:
        provoke, data = _CASES[case]
        error = await provoke(cache)  # type: ignore[misc]
        copy = pickle.loads(pickle.dumps(error))
        for one in (error, copy):
            assert {name: getattr(one, name) for name in data} == data
        assert type(copy) is type(error)
        assert str(copy) == str(error) != ""

    async def test_no_message_shows_a_value(self, cache: Cache) -> None:
        made = await cache.create("ada", state={"a": "secret", "temp:t": "secret"})
        other = await cache.get("ada", made.id)

        async def conflict() -> None:
            async with made.edit() as draft:
                await other.set("a", "secret two")
                draft["a"] = "secret three"

        told = [
            await raised(errors.TypeMismatchError, made.increment("a")),
            await raised(errors.TypeMismatchError, made.append("temp:t", "secret")),
            await raised(errors.InvalidValueError, made.set("a", {"x": ("secret",)})),
            await raised(errors.StaleSessionError, conflict()),
            await raised(errors.StaleSessionError, made.update({"a": "secret"}, if_revision=1)),
        ]
        assert [error for error in told if "secret" in str(error) + repr(error)] == []
        assert "secret" not in repr(made) + repr(made.state)
