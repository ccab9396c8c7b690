"""The error tree: as its page draws it, and able to cross process boundaries."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

import pytest
import sessioncache_worker

import sessioncache
from sessioncache import errors
from sessioncache.errors import SessionCacheError

TREE = {
    name: cls
    for name, cls in vars(errors).items()
    if isinstance(cls, type) and issubclass(cls, SessionCacheError) and cls is not SessionCacheError
}


def every_module() -> Iterator[ModuleType]:
    """All of the library's and the worker's modules that can be imported here."""
    for package in (sessioncache, sessioncache_worker):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def test_there_is_no_other_class_of_the_tree() -> None:
    """What reaches a caller can be named, caught and read again by whoever imports the package only."""
    others = {
        cls
        for module in every_module()
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, SessionCacheError)
    }
    assert others - {SessionCacheError} == set(TREE.values())


def drawn() -> dict[str, str]:
    """Name -> built-in base, as the module's docstring draws the tree."""
    lines = re.findall(r"^ +[├└]── (\w+)(?: \((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    return dict(lines)


def test_the_page_draws_every_error() -> None:
    assert set(drawn()) == set(TREE)


@pytest.mark.parametrize("name", TREE)
def test_an_error_has_the_bases_that_the_page_draws(name: str) -> None:
    bases = [base.__name__ for base in TREE[name].__bases__]
    assert bases == ["SessionCacheError", *filter(None, [drawn()[name]])]


@pytest.mark.parametrize("name", TREE)
def test_an_error_is_public(name: str) -> None:
    assert getattr(sessioncache, name) is TREE[name]


@pytest.mark.parametrize("name", TREE)
def test_an_error_survives_pickling_with_its_data(name: str) -> None:
    error = TREE[name]("what happened", keys=("a",), session_id="s")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is TREE[name]
    assert str(copy) == "what happened"
    assert vars(copy) == vars(error)
    assert (vars(copy)["keys"], vars(copy)["session_id"]) == (("a",), "s")


@pytest.mark.parametrize("name", TREE)
def test_an_error_without_a_message_tells_what_it_means(name: str) -> None:
    assert str(TREE[name]()) == (TREE[name].__doc__ or "").split("\n")[0] != ""


def test_a_stale_session_error_has_keys_even_if_none_were_named() -> None:
    assert errors.StaleSessionError().keys == ()
