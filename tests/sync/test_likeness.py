"""The synchronous API is the asynchronous one, name by name: neither can drift from the other."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sessioncache import (
    Batch,
    BatchCalls,
    NamespaceCalls,
    Pending,
    Scope,
    Session,
    SessionCache,
    SessionCalls,
    SessionStateTool,
    sync,
)
from sessioncache.namespace import Namespace
from sessioncache.sync.likeness import without_async
from tests.packaging.test_shape import loaded_by

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (SessionCache, sync.SessionCache),
    (Session, sync.Session),
    (Scope, sync.Scope),
    (Namespace, sync.Namespace),
    (SessionStateTool, sync.SessionStateTool),
    (Batch, sync.Batch),
    (BatchCalls, sync.BatchCalls),
    (SessionCalls, sync.SessionCalls),
    (NamespaceCalls, sync.NamespaceCalls),
    (Pending, sync.Pending),
]
NOT_FOR_CALLERS = {
    "apply",
    "created",
    "gone",
    "unflushed",
    "moved",
    "of_session",
    "place",
    "read",
    "read_all",
    "under_lease",
}
"""What the package itself asks of an asynchronous handle."""
RENAMED = {"aclose": "close"}
OF_ITS_OWN = {"current", "lock", "moved"}
"""What a synchronous cache is asked by its handles."""


def surface(cls: type[Any], without: set[str]) -> dict[str, Any]:
    """The public names of a class, with what stands behind them."""
    names = {name for name in dir(cls) if not name.startswith("_")} - without
    return {RENAMED.get(name, name): inspect.getattr_static(cls, name) for name in names}


def parameters(what: Any) -> list[tuple[str, Any, Any]] | None:
    """Name, kind and default of each parameter; None for a property."""
    if isinstance(what, property):
        return None
    function = what.__func__ if isinstance(what, classmethod) else what
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


CALLS = [
    pytest.param(theirs, ours, name, id=f"{ours.__name__}.{name}")
    for theirs, ours in PAIRS
    for name in sorted(surface(theirs, NOT_FOR_CALLERS))
]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_have_the_same_names(theirs: type[Any], ours: type[Any]) -> None:
    assert set(surface(theirs, NOT_FOR_CALLERS)) == set(surface(ours, OF_ITS_OWN))


@pytest.mark.parametrize(("theirs", "ours", "name"), CALLS)
def test_both_take_the_same_parameters_and_mean_the_same(theirs: type[Any], ours: type[Any], name: str) -> None:
    model, copy = surface(theirs, NOT_FOR_CALLERS)[name], surface(ours, OF_ITS_OWN)[name]
    assert parameters(copy) == parameters(model)
    assert not inspect.iscoroutinefunction(copy)
    assert copy.__doc__
    if name not in RENAMED.values():
        assert copy.__doc__ == without_async(model.__doc__)


@pytest.mark.parametrize(("theirs", "ours", "name"), CALLS)
def test_no_docstring_tells_to_await(theirs: type[Any], ours: type[Any], name: str) -> None:
    told = str(surface(ours, OF_ITS_OWN)[name].__doc__).lower()
    assert [word for word in ("async", "await") if word in told] == []


def test_importing_the_synchronous_api_is_cheap() -> None:
    assert loaded_by("import sessioncache.sync") <= {"redis"}
    assert loaded_by("import sessioncache.sync") == loaded_by("import sessioncache")


def test_public_names_are_exact() -> None:
    assert [name for name in sync.__all__ if not hasattr(sync, name)] == []
    assert {cls.__name__ for _, cls in PAIRS} <= set(sync.__all__)
