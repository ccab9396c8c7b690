"""Writes the reference: every public name, its signature and what its docstring says.

``python docs/reference.py`` writes the pages of docs/reference/ anew; a test says where they are stale.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "workers")]

import sessioncache_worker  # noqa: E402 - found by the line above where nothing is installed
from sessioncache_worker.cli import build_parser as worker_parser  # noqa: E402

import sessioncache  # noqa: E402
from sessioncache import errors, settings, testing  # noqa: E402
from sessioncache.cli.main import build_parser  # noqa: E402
from tests.sync.test_likeness import NOT_FOR_CALLERS  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
_FIRST = ("SessionCache", "Session", "Namespace", "Scope", "SessionInfo", "SessionPage")
"""Classes of the library in the order of the page; all others follow by name."""
_OPAQUE = {"MemoryStore"}
"""Classes whose objects are handed on and never asked."""
_OF_THE_PACKAGE = NOT_FOR_CALLERS | {"over"}
_TIERS = {"redis", "database", "data_dir"}
"""Options of every command."""
_NOTE = "<!-- Made by docs/reference.py from the docstrings: change those, and run it again. -->"


def pages() -> dict[str, str]:
    """The content of each page, by the name of its file."""
    return {
        "sessions.md": _page("Sessions", _sessions()),
        "errors.md": _page("Errors", _errors()),
        "settings.md": _page("Settings and limits", _settings()),
        "worker.md": _page("The worker as a class", _names(sessioncache_worker)),
        "testing.md": _page("For tests", _names(testing)),
        "command-line.md": _page("Command line", _commands()),
    }


def _page(title: str, parts: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", _NOTE, *filter(None, parts)]) + "\n"


# ---- the library


def _sessions() -> Iterator[str]:
    yield "All names of the package `sessioncache` but its errors. The same without `await`: [sync](../sync.md)."
    public = {name: getattr(sessioncache, name) for name in sessioncache.__all__ if not _is_error(name)}
    for name in [*_FIRST, *(name for name in public if name not in _FIRST)]:
        yield from _thing(name, public[name])


def _names(module: Any) -> Iterator[str]:
    yield _prose(module.__doc__)
    for name in module.__all__:
        yield from _thing(name, getattr(module, name))


def _thing(name: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing):
        yield from _class(name, thing)
    elif callable(thing):
        yield from (f"## {name}", f"`{_call(name, thing)}`", _prose(thing.__doc__))
    else:
        yield from (f"## {name}", f"`{thing!r}`")


def _class(name: str, cls: type[Any]) -> Iterator[str]:
    yield f"## {name}"
    made_by_callers = not _has_fields(cls) and "tiers" not in inspect.signature(cls).parameters
    if made_by_callers:
        yield f"`{_call(name, cls)}`"
    yield _prose(cls.__doc__)
    yield from (_prose(base.__doc__.partition("\n")[2]) for base in _own_bases(cls)[1:] if base.__doc__)
    if _has_fields(cls):
        yield _table(("attribute", "type", "meaning"), [(f"`{n}`", f"`{t}`", d) for n, t, _, d in _fields(cls)])
    elif made_by_callers and (init := vars(cls).get("__init__")):
        yield _prose(init.__doc__)
    for member, what in () if name in _OPAQUE else _members(cls):
        yield from _member(name, member, what)


def _member(owner: str, name: str, what: Any) -> Iterator[str]:
    if isinstance(what, property):
        kind = inspect.signature(what.fget).return_annotation if what.fget else ""
        yield from (f"### {owner}.{name}", f"`{name}: {kind}`", _prose(what.__doc__))
    else:
        function = what.__func__ if isinstance(what, (classmethod, staticmethod)) else what
        before = "await " if inspect.iscoroutinefunction(function) else ""
        yield from (f"### {owner}.{name}", f"`{before}{_call(name, function)}`", _prose(function.__doc__))


def _members(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """What callers use of a class, in the order of the source."""
    hidden = _OF_THE_PACKAGE | {name for name, *_ in _fields(cls)}
    seen: set[str] = set()
    for base in _own_bases(cls):
        for name, what in vars(base).items():
            shown = isinstance(what, (property, classmethod, staticmethod)) or inspect.isfunction(what)
            if shown and not name.startswith("_") and name not in hidden | seen:
                seen.add(name)
                yield name, inspect.getattr_static(cls, name)


def _own_bases(cls: type[Any]) -> list[type[Any]]:
    """The class and those of its bases that have no place of their own in the reference."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("sessioncache")]
    return [cls, *(base for base in ours[1:] if base.__name__ not in sessioncache.__all__)]


def _has_fields(cls: type[Any]) -> bool:
    return is_dataclass(cls) or hasattr(cls, "_fields")


def _fields(cls: type[Any]) -> list[tuple[str, str, Any, str]]:
    """Name, type, default and meaning of what a class says it holds."""
    if not _has_fields(cls):
        return []
    told = _told(cls)
    defaults = {f.name: f.default for f in fields(cls)} if is_dataclass(cls) else {}
    return [(name, kind, defaults.get(name, MISSING), told.get(name, "")) for name, kind in _annotated(cls)]


def _annotated(cls: type[Any]) -> list[tuple[str, str]]:
    return [
        (n.target.id, ast.unparse(n.annotation))
        for n in _body(cls)
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]


def _told(cls: type[Any]) -> dict[str, str]:
    """The docstrings below the fields of a class."""
    return _told_below(_body(cls))


def _told_below(body: list[ast.stmt]) -> dict[str, str]:
    told: dict[str, str] = {}
    for before, below in pairwise(body):
        target = before.target if isinstance(before, ast.AnnAssign) else None
        if isinstance(before, ast.Assign):
            target = before.targets[0]  # type: ignore[assignment]
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(text, str):
            told[target.id] = _line(text)
    return told


def _body(cls: type[Any]) -> list[ast.stmt]:
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    return parsed.body if isinstance(parsed, ast.ClassDef) else []


# ---- errors, settings


def _is_error(name: str) -> bool:
    thing = getattr(sessioncache, name)
    return inspect.isclass(thing) and issubclass(thing, errors.SessionCacheError)


def _errors() -> Iterator[str]:
    yield _prose(errors.SessionCacheError.__doc__)
    yield "All are in `sessioncache`, below `SessionCacheError`. No message has a state value or a password in it."
    rows = []
    for name, error in vars(errors).items():
        if inspect.isclass(error) and issubclass(error, errors.SessionCacheError) and error.__bases__ != (Exception,):
            also = ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base is not errors.SessionCacheError)
            told = _told(error)
            data = "; ".join(f"`{n}: {kind}` {told.get(n, '')}".rstrip(" .") for n, kind in _annotated(error))
            rows.append((f"`{name}`", _line(error.__doc__), also, data))
    yield _table(("error", "meaning", "also a", "attributes"), rows)


def _settings() -> Iterator[str]:
    yield "Keyword arguments of `SessionCache(…)`, `SessionCache.connect(…)` and `FlushWorker(…)`; others are refused."
    yield "## Of the cache"
    yield _setting_table(settings.CacheSettings)
    yield "## Of the worker"
    yield _setting_table(settings.WorkerSettings)
    yield "## Limits that are fixed"
    told = _told_below(ast.parse(inspect.getsource(settings)).body)
    rows = [(f"`{name}`", f"{getattr(settings, name):,}", text) for name, text in told.items() if name.isupper()]
    yield _table(("limit", "value", "meaning"), rows)


def _setting_table(cls: type[Any]) -> str:
    rows = [(f"`{name}`", f"`{default!r}`", meaning) for name, _, default, meaning in _fields(cls)]
    return _table(("setting", "default", "meaning"), rows)


# ---- the command line


def _commands() -> Iterator[str]:
    parsers = build_parser(), worker_parser()
    yield "`--help` says the same on the terminal. Every command takes these, for where the tiers are:"
    yield _options(action for action in parsers[1]._actions if action.dest in _TIERS)
    for parser in parsers:
        yield from _command(parser, "")


def _command(parser: argparse.ArgumentParser, epilog_above: str) -> Iterator[str]:
    yield f"{'###' if ' ' in parser.prog else '##'} {parser.prog}"
    yield _prose(parser.description)
    hidden = _TIERS | {"help", "command", "action"}
    actions = [action for action in parser._actions if action.dest not in hidden]
    if actions:
        yield _options(actions)
    epilog = parser.epilog or ""
    if epilog and epilog != epilog_above:
        yield f"```text\n{epilog.removesuffix(epilog_above).strip()}\n```"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _command(below, epilog or epilog_above)


def _options(actions: Iterable[argparse.Action]) -> str:
    return _table(("option", "meaning"), [(f"`{_option(action)}`", _line(action.help)) for action in actions])


def _option(action: argparse.Action) -> str:
    metavar = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices is not None:
        metavar = "|".join(map(str, action.choices))
    value = "" if action.nargs == 0 else str(metavar)
    return " ".join(part for part in (", ".join(action.option_strings), value) if part)


# ---- text


class _Verbatim(str):
    """An annotation as the source has it, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _call(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    wanted = [
        one.replace(annotation=_verbatim(one.annotation))
        for one in signature.parameters.values()
        if one.name not in ("self", "cls")
    ]
    returned = signature.empty if inspect.isclass(function) else _verbatim(signature.return_annotation)
    return name + str(signature.replace(parameters=wanted, return_annotation=returned))


def _verbatim(annotation: Any) -> Any:
    return _Verbatim(annotation) if isinstance(annotation, str) else annotation


def _prose(text: str | None) -> str:
    """A docstring as Markdown."""
    cleaned = re.sub(r"(?m)^Raises:\n((?: {4}.+(?:\n|$))+)", _raises, inspect.cleandoc(text or ""))
    return _ticks(re.sub(r"(?:^|(?<=\n))::\n\n((?:(?: {4}.*)?\n?)+)", _fenced, cleaned)).strip()


def _raises(part: re.Match[str]) -> str:
    """The errors that a docstring lists under `Raises:`, as a list of Markdown."""
    listed = re.findall(r"(?m)^(\w+): (.+(?:\n {4}.+)*)", textwrap.dedent(part[1]))
    return "Raises:\n\n" + "".join(f"- `{name}`: {_line(when)}\n" for name, when in listed)


def _fenced(part: re.Match[str]) -> str:
    return f"```python\n{textwrap.dedent(part[1]).strip()}\n```\n\n"


def _ticks(text: str) -> str:
    return re.sub(r"(?<!`)``(?!`)", "`", text).replace(".  ", ". ")


def _line(text: str | None) -> str:
    return _ticks(" ".join(inspect.cleandoc(text or "").split()))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
