"""The layers of the library: what stands on what (see docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.packaging.test_shape import modules

LAYERS = (
    ("errors",),
    ("primitives",),
    ("hot", "durable"),
    ("embedded",),
    ("coordination",),
    ("current", "lease", "records", "watch"),
    ("handle",),
    ("namespace", "operations", "scope"),
    ("session",),
    ("batch", "tool"),
    ("cache",),
    ("health", "replay", "sync", "testing"),
    ("cli",),
)
"""From the ground up: each may import what is in a lower row, and itself; rows of several do not know each other."""

_ROW = {room: row for row, rooms in enumerate(LAYERS) for room in rooms}


def _room(module: str) -> str:
    """The package or module directly below ``sessioncache``; settings and primitives check each other's limits."""
    room = module.removeprefix("sessioncache").lstrip(".").partition(".")[0]
    return "primitives" if room == "settings" else room


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, but for what only type checkers read."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from _at_run_time(child)


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines on which a module imports rooms of the library, at whatever time, and the rooms."""
    for node in _at_run_time(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from ((node.lineno, _room(name)) for name in names if name.startswith("sessioncache."))


def test_every_room_has_a_row() -> None:
    rooms = {_room(name) for name in modules() if name.startswith("sessioncache.")}
    assert rooms == set(_ROW)


def test_each_room_imports_only_what_is_below_it() -> None:
    upward = [
        f"{name}:{line} imports {room}"
        for name, tree in modules().items()
        if (own := _room(name)) in _ROW and name.startswith("sessioncache.")
        for line, room in _imported(tree)
        if room in _ROW and room != own and _ROW[room] >= _ROW[own]
    ]
    assert upward == []


@pytest.mark.parametrize(
    ("package", "rooms"),
    [("redis", {"hot", "health"}), ("sqlalchemy", {"durable", "health", "replay", "sync", "cli"})],
)
def test_each_driver_is_known_to_few_rooms(package: str, rooms: set[str]) -> None:
    """Its own tier; beside it what examines servers or rows by itself, pools per thread, and types of the commands."""
    importing = {
        _room(name)
        for name, tree in modules().items()
        if name.startswith("sessioncache.")
        for node in _at_run_time(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        if module.partition(".")[0] == package
    }
    assert importing == rooms


_LETTER = re.compile(rb"[a-zA-Z!=+]")
_COMMAND = re.compile(
    rb"H[A-Z]+|[SZ](ADD|REM|CARD|SCAN|RANGE)|SCAN|TIME|EVAL(SHA)?|EXISTS|INFO|CONFIG|PUBLISH|GET|SET|DEL|EXPIRE"
)
_OF_OTHER_THINGS = {"sessioncache.cli.views", "sessioncache.primitives.cursors"}
"""Keys of a keyboard, the padding of base64."""


@pytest.mark.parametrize(
    ("spelled", "rooms"),
    [(_LETTER, {"hot"}), (_COMMAND, {"hot", "health", "embedded", "testing"})],
    ids=["fields and codes", "commands of Redis"],
)
def test_the_storage_format_is_spelled_in_its_room_alone(spelled: re.Pattern[bytes], rooms: set[str]) -> None:
    """Doctor asks the server about itself, the embedded default starts it, and a cache in memory has a clock to ask."""
    found = [
        f"{name}:{node.lineno} {node.value!r}"
        for name, tree in modules().items()
        if _room(name) not in rooms and name not in _OF_OTHER_THINGS and ".conformance." not in name
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and spelled.fullmatch(node.value)
    ]
    assert found == []
