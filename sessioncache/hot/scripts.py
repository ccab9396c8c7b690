"""The Lua scripts: read from the ``.lua`` files beside, assembled with what they include, known by their SHA-1."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (.*)$", re.MULTILINE)


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
        text = f"#!lua flags={flags}\n" + text.split("\n", 1)[1]
    data = text.encode()
    return Script(name, data, sha1(data).hexdigest().encode())


def assemble(name: str) -> str:
    """The source: first line, included files, body."""
    first, body = _source(name).split("\n", 1)
    found = _INCLUDE.search(body)
    included = [_source(part) for part in found.group(1).split()] if found else []
    return "\n".join([first, *included, body])


def _source(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
