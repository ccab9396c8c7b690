"""The Lua scripts: read from the ``.lua`` files, assembled with what they include, and identified by their SHA-1."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (.*)$", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n?", re.MULTILINE)
_STATEMENT = re.compile(r"^(?=local )", re.MULTILINE)
_DECLARED = re.compile(r"local (?:function )?(\w+(?:, \w+)*)")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Script:
    """One script as it is sent to Redis."""

    name: str
    text: bytes
    sha: bytes


@cache
def load_script(name: str, flags: str | None = None) -> Script:
    """The script of ``lua/<name>.lua``, by its own flags or those given."""
    text = assemble(name)
    if flags is not None:
        # The same script under other flags is another one to Redis, with a SHA-1 of its own.
        text = f"#!lua flags={flags}\n" + text.split("\n", 1)[1]
    data = text.encode()
    return Script(name, data, sha1(data).hexdigest().encode())


def assemble(name: str) -> str:
    """The source: first line, what is needed of included files, body."""
    first, body = _source(name).split("\n", 1)
    found = _INCLUDE.search(body)
    included = "\n".join(map(_source, found.group(1).split())) if found else ""
    return "\n".join([first, *needed(included, body), body])


def needed(included: str, body: str) -> list[str]:
    """What a body needs of an included text, by name, directly or through others: statements in order, without
    comments.

    Redis creates every function of a script anew at each call: what is not needed costs time there.  An included text
    consists of ``local`` statements that begin at the margin.
    """
    # Without comments: a function that is only mentioned in one would be sent along.
    words = set(_WORD.findall(_COMMENT.sub("", body)))
    statements = []
    # From the end: what a statement uses is declared before it.
    for statement in reversed(_STATEMENT.split(_COMMENT.sub("", included))):
        declared = _DECLARED.match(statement)
        if declared and not words.isdisjoint(declared[1].split(", ")):
            statements.append(statement.rstrip())
            words.update(_WORD.findall(statement))
    return statements[::-1]


def _source(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
