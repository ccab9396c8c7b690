"""Every argument of every public call: what cannot be used is refused at the call, by an error of the tree."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from sessioncache_worker import FlushWorker
from sessioncache_worker.cli import main as worker_main

from sessioncache import (
    Batch,
    BatchCalls,
    Namespace,
    Record,
    Scope,
    Session,
    SessionCache,
    SessionCacheError,
    SessionCalls,
    SessionStateTool,
    derive_title,
    sync,
)
from sessioncache.cli.main import main
from sessioncache.settings import CacheSettings, WorkerSettings
from sessioncache.testing import InMemorySessionCache


class _Odd:
    """Something that is no argument of anything."""


class _Text(str):
    """A subclass of what is asked for."""

    __slots__ = ()


NAN, INF = math.nan, math.inf
NAMES = [5, None, b"x", True, _Odd(), ["a"], ("a",), 1.0, "\0", "\ud800", "x" * 257, _Text("x")]
IDS = [*NAMES, ""]
KEYS = [one for one in NAMES if one != "x" * 257] + ["x" * 300]
MAPPINGS = [5, 0, "", "x", b"x", ["a"], [("a", 1)], _Odd(), {5: 1}, {None: 1}, {"a": _Odd()}, {"a": NAN}]
SEVERAL = [5, None, "abc", b"ab", _Odd(), [5], [None], [["a"]]]
NUMBERS = ["5", None, True, NAN, INF, _Odd(), 10**5_000, 1j]
REVISIONS = ["5", 1.0, -1, True, _Odd(), b"1", 10**30, 2**63, NAN]
COUNTS = ["5", 1.0, -1, True, None, _Odd(), 10**30, NAN]
SECONDS = ["5", b"1", NAN, INF, -INF, -1, True, None, _Odd(), 10**400]
TITLES = [5, None, b"x", True, _Odd(), "\0", "\ud800", "x" * 10**6, _Text("x")]
VALUES = [_Odd(), NAN, (1,), b"x", {5: 1}, {1}, 10**5_000]
FLAGS = ["false", 0, 1, None, _Odd()]
CURSORS = [5, "x", "", b"x", True, _Odd(), "\ud800", ["a"], "é"]
ORDERS = [5, "x", None, b"created", _Odd(), ["a"], {}]
FIRST = [5, b"x", True, _Odd(), ["a"]]
RECORDS = [5, None, {"key": "a"}, Record(5, 1), Record("a", _Odd()), Record("a", 1, "x"), Record("user:a", 1)]  # type: ignore[arg-type]


def but(values: Iterable[Any], *allowed: Any) -> list[Any]:
    """All but what has a meaning there."""
    return [one for one in values if not any(one is fine or (one == fine != True) for fine in allowed)]  # noqa: E712


_HANDLE: dict[str, dict[str, list[Any]]] = {
    "get": {"key": KEYS},
    "set": {"key": KEYS, "value": VALUES},
    "update": {"mapping": [*MAPPINGS, None], "delete": SEVERAL, "if_revision": REVISIONS},
    "delete": {"key": KEYS},
    "increment": {"key": KEYS, "by": NUMBERS},
    "append": {"key": KEYS, "items": VALUES},
    "flush": {"timeout": SECONDS},
    "edit": {"overwrite": FLAGS},
}
_TOUCH = {"messages": COUNTS, "tokens": COUNTS, "first_message": FIRST}
_SESSION: dict[str, dict[str, list[Any]]] = {
    "touch": _TOUCH,
    "rename": {"title": TITLES},
    "fork": {"new_id": but(IDS, None)},
    "upsert_record": {"record": RECORDS},
    "namespace": {"name": IDS},
    "lease": {"ttl": [*SECONDS, 0, 10**9], "wait": SECONDS},
}
_WHOSE = {"user": NAMES, "session_id": IDS}
_LIST = {"user": but(NAMES, None), "all_apps": FLAGS, "order": ORDERS}
_STATE = {"state": but(MAPPINGS, None), "title": TITLES}
_CACHE: dict[str, dict[str, list[Any]]] = {
    "create": {"user": NAMES, "session_id": but(IDS, None), **_STATE},
    "get": _WHOSE,
    "get_or_create": {**_WHOSE, **_STATE},
    "delete": _WHOSE,
    "fork": {**_WHOSE, "new_id": but(IDS, None)},
    "touch": {**_WHOSE, **_TOUCH},
    "rename": {**_WHOSE, "title": TITLES},
    "resume": {"session_id": IDS, "user": but(NAMES, None)},
    "list": {**_LIST, "limit": but(COUNTS, None), "cursor": CURSORS},
    "iter_sessions": _LIST,
    "find": {"session_id": IDS, "all_apps": FLAGS},
    "batch": {"check": FLAGS},
    "user_scope": {"user": NAMES},
    "bound_to": {"org": but(NAMES, None), "app": but(NAMES, None)},
    "flush": {"timeout": SECONDS},
    "erase_user": {"user": NAMES},
    "export_session": _WHOSE,
    "export_user": {"user": NAMES},
}
_BATCH = {name: _CACHE[name] for name in ("create", "get", "get_or_create", "delete", "touch", "rename")}
_NOTED = {name: _HANDLE[name] for name in ("get", "set", "update", "delete", "increment", "append")}
TABLE: dict[type, dict[str, dict[str, list[Any]]]] = {
    SessionCache: _CACHE,
    Session: {**_HANDLE, **_SESSION},
    Namespace: _HANDLE,
    Scope: _HANDLE,
    Batch: {**_BATCH, "on": {"handle": [5, None, "x", _Odd()]}},
    BatchCalls: _NOTED,
    SessionCalls: {**_NOTED, **{name: _SESSION[name] for name in ("touch", "rename", "upsert_record")}},
}
FINE: dict[str, Any] = {
    "user": "ada",
    "session_id": "s1",
    "key": "k",
    "value": 1,
    "mapping": {"k": 1},
    "title": "t",
    "name": "n",
    "record": Record("k", 1),
}
"""What the other arguments of a call are."""
_ANY = {"default"}
"""Arguments that are handed back as they are."""
_OURS = {"moved", "read", "created", "under_lease", "apply"}
"""Methods that are not for callers, or take what only we can make."""


@pytest.fixture
async def cache() -> AsyncIterator[SessionCache]:
    """A cache with one session of one user."""
    async with InMemorySessionCache(app="app") as opened:
        await opened.create("ada", session_id="s1", state={"k": 1, "l": [1]})
        yield opened


def parameters(owner: type, method: str) -> list[str]:
    """The names of a method's parameters, without its object."""
    return [one for one in inspect.signature(getattr(owner, method)).parameters if one not in ("self", *_ANY)]


@pytest.mark.parametrize("owner", TABLE, ids=lambda owner: owner.__name__)
def test_the_table_has_every_parameter(owner: type) -> None:
    found = {
        name: set(parameters(owner, name))
        for name, member in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and name not in _OURS and parameters(owner, name)
    }
    found.pop("connect", None)
    assert {name: set(given) for name, given in TABLE[owner].items()} == found


CASES = [
    (owner, method, name) for owner, methods in TABLE.items() for method, given in methods.items() for name in given
]
"""Each parameter of each method."""


async def target(owner: type, cache: SessionCache) -> tuple[Any, Batch | None]:
    """An object of a class, and the batch that it is of."""
    session, batch = await cache.get("ada", "s1"), cache.batch()
    batch._begin()
    found: dict[type, Any] = {
        SessionCache: cache,
        Session: session,
        Namespace: session.namespace("n"),
        Scope: cache.app_scope(),
        Batch: batch,
        BatchCalls: batch.on(cache.app_scope()),
        SessionCalls: batch.on(session),
    }
    return found[owner], batch if owner in (Batch, BatchCalls, SessionCalls) else None


async def call(one: Any, method: str, name: str, value: Any) -> None:
    """Call a method with one odd argument, and do with the result what callers do."""
    asked = inspect.signature(getattr(one, method)).parameters
    given = {other: FINE[other] for other, about in asked.items() if about.default is about.empty and other in FINE}
    if method == "get_or_create":
        given["session_id"] = "new"
    words: tuple[Any, ...] = ("l", value) if name == "items" else ()
    result = getattr(one, method)(*words, **({} if words else {**given, name: value}))
    if inspect.isawaitable(result):
        await result
    elif hasattr(result, "__aenter__"):
        async with result:
            pass
    elif hasattr(result, "__aiter__"):
        async for _ in result:
            pass


@pytest.mark.parametrize(("owner", "method", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
async def test_what_cannot_be_used_is_refused_by_an_error_of_the_tree(
    cache: SessionCache, owner: type, method: str, name: str
) -> None:
    for value in TABLE[owner][method][name]:
        one, batch = await target(owner, cache)
        with pytest.raises(SessionCacheError) as told:
            async with asyncio.timeout(60):
                await call(one, method, name, value)
        assert len(str(told.value)) < 400
        if batch is not None:
            assert batch._order == [], "what is wrong is not noted first"


@pytest.mark.parametrize("value", [5, ["a"], None, b"x"], ids=repr)
async def test_a_draft_refuses_what_is_no_key_where_it_is_set(cache: SessionCache, value: Any) -> None:
    session = await cache.get("ada", "s1")
    with pytest.raises(SessionCacheError):
        async with session.edit() as draft:
            draft[value] = 1
    assert dict((await cache.get("ada", "s1")).state) == {"k": 1, "l": [1]}


@pytest.mark.parametrize("value", [5, None, "x", [1], {"operation": 5}, {5: 5}, {"operation": "get", "namespace": 5}])
async def test_the_tool_refuses_what_it_cannot_use(cache: SessionCache, value: Any) -> None:
    with pytest.raises(SessionCacheError):
        await SessionStateTool(await cache.get("ada", "s1")).call(value)


@pytest.mark.parametrize("value", [5, None, b"x", _Odd(), ["a"]], ids=lambda one: type(one).__name__)
def test_no_title_is_derived_from_what_is_no_text(value: Any) -> None:
    with pytest.raises(SessionCacheError):
        derive_title(value)


_SETTINGS = ["x", b"1", NAN, INF, -1, True, _Odd(), [1], {}]
_PREFIXES = ["", "{", "\0", "\ud800", "x" * 10_000, 5, None, b"x", True]


@pytest.mark.parametrize("kind", [CacheSettings, WorkerSettings])
def test_no_setting_takes_what_cannot_be_used(kind: type[CacheSettings | WorkerSettings]) -> None:
    for name in inspect.signature(kind).parameters:
        for value in _PREFIXES if name == "prefix" else _SETTINGS:
            with pytest.raises(SessionCacheError):
                kind.of({name: value})
        if name.endswith("_ttl"):
            with pytest.raises(SessionCacheError):
                kind.of({name: 1e300})


@pytest.mark.parametrize("what", ["app", "org"])
def test_no_cache_is_of_what_is_no_name(what: str) -> None:
    for value in NAMES:
        given: dict[str, Any] = {"app": "app", what: value}
        with pytest.raises(SessionCacheError):
            InMemorySessionCache(**given)
        with pytest.raises(SessionCacheError):
            SessionCache.connect("redis://x", "sqlite:///x", **given)
        with pytest.raises(SessionCacheError):
            sync.SessionCache.connect("redis://x", "sqlite:///x", **given)


@pytest.mark.parametrize("made", [SessionCache, FlushWorker])
def test_no_client_or_engine_is_of_another_kind(made: Any) -> None:
    options = {"app": "app"} if made is SessionCache else {}
    for value in (5, None, "redis://localhost", _Odd()):
        with pytest.raises(SessionCacheError):
            made(value, value, **options)


_NUMBERS = ("nan", "inf", "-1", "0", "x", "", "1e400")
_COMMANDS: dict[str, tuple[str, ...]] = {
    "flush --timeout": ("nan", "inf", "-1", "x", "", "1e400"),
    "top --interval": _NUMBERS,
    "top --count": _NUMBERS,
    "sessions list --limit": _NUMBERS,
    "sessions list --order": ("x", ""),
    "sessions delete s1 --wait": ("nan", "inf", "-1", "x", "", "1e400"),
    "flush --buckets": _NUMBERS,
    "flush --prefix": ("", "{", "}"),
}


@pytest.mark.parametrize("words", _COMMANDS)
def test_no_option_of_a_command_takes_what_cannot_be_used(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for value in _COMMANDS[words]:
        with pytest.raises(SystemExit) as ended:
            main([*words.split(), value])
        assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_no_option_of_the_worker_takes_what_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    for name in inspect.signature(WorkerSettings).parameters:
        option = "--" + name.replace("_", "-")
        for value in ("", "{") if name == "prefix" else _NUMBERS:
            assert _ending([option, value]) == 2, (option, value)
    assert "Traceback" not in capsys.readouterr().err


def _ending(words: list[str]) -> object:
    """How the worker's command ends."""
    try:
        return worker_main(
            [*words, "--redis", "redis://127.0.0.1:1", "--database", "sqlite:////nowhere/x.db", "--once"]
        )
    except SystemExit as ended:
        return ended.code
