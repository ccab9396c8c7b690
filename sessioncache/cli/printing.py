"""What commands print: for people on a terminal, plain text for pipes, JSON for programs.

Names, titles and values come from users: no control character of theirs reaches a terminal.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from sessioncache.primitives.units import told_seconds

_CELL = 9
"""Columns of a terminal that a cell of a table takes at least, if words are to be read in it."""
_JOINERS = "\u200c\u200d"
"""Invisible, and part of ordinary words and emoji."""


def is_terminal() -> bool:
    """Whether people read standard output."""
    return sys.stdout.isatty()


def width() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size((100, 24)).columns


def plain(text: object) -> str:
    r"""The text with what is not for display, line ends too, told as ``\x1b`` or ``\u202e``."""
    return "".join(c if c.isprintable() or _is_harmless(c) else _escape(c) for c in str(text))


def _is_harmless(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def shell_word(text: str) -> str:
    """The text as a word for a shell, to be copied from a terminal."""
    if plain(text) == text:
        return shlex.quote(text)
    escaped = "".join(_shell_escape(c) for c in text)
    return f"$'{escaped}'"


def _shell_escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    shown = plain(character)
    # Of the bytes, and in octal: no shell reads a digit that follows as a part of it.
    return character if shown == character else "".join(f"\\{byte:03o}" for byte in character.encode())


def json_text(value: object) -> str:
    """A value as JSON text that people can read, on one line."""
    return plain(json.dumps(value, ensure_ascii=False))


def cut(text: str, cells: int) -> str:
    """At most so many columns of a text."""
    from rich.text import Text

    shown = Text(text[: 4 * cells])  # measuring takes long, and values may be large
    shown.truncate(cells, overflow="ellipsis")
    return shown.plain


def exact(moment: datetime) -> str:
    """A time in UTC, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def age(moment: datetime) -> str:
    """How long ago it was, in its largest unit."""
    seconds = int((datetime.now(moment.tzinfo) - moment).total_seconds())
    return f"{told_seconds(seconds)} ago" if seconds > 0 else "now"


def print_json(answer: dict[str, Any]) -> None:
    """One object on one line, the last of standard output; pure ASCII, so that it survives every pipe."""
    print(json.dumps(answer))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    """On a terminal a table, or where it is too narrow for one a line for each cell; elsewhere lines with tabs."""
    if not is_terminal():
        for row in chain([columns] if header else [], rows):
            print("\t".join(map(plain, row)))
    elif width() < _CELL * len(columns):
        _print_cells(columns, rows)
    else:
        _print_for_people(columns, rows, header)


def _print_cells(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    longest = max(map(len, columns))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            print(f"{name:<{longest}}  {plain(cell)}")
        print()


def _print_for_people(columns: Sequence[str], rows: Iterable[Sequence[object]], header: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, show_header=header, box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
        column.min_width = len(str(column.header))
    table.columns[0].no_wrap = True  # an id is there to be copied
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console().print(table)


def note(text: str) -> None:
    """Print something besides the result, on standard error."""
    print(text, file=sys.stderr)
