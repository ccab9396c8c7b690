"""The scripts as they are sent: each with what it needs of the files it includes, and no more."""

from __future__ import annotations

import random
import re
from importlib.resources import files
from typing import Any

import pytest
from lupa.lua51 import LuaRuntime

from sessioncache.hot.scripts import assemble, load_script, needed
from sessioncache.primitives.revisions import LARGEST, decode_revision, encode_revision

INCLUDED = ("prelude", "writing", "gathered")
SOURCES = {path.name.removesuffix(".lua"): path for path in files("sessioncache.hot").joinpath("lua").iterdir()}
SCRIPTS = sorted(SOURCES.keys() - INCLUDED)


def code(text: str) -> str:
    """A text without the lines that are comments, and without its first line."""
    return re.sub(r"^ *--.*$", "", text.split("\n", 1)[1], flags=re.MULTILINE)


def shared_names(name: str) -> set[str]:
    """What the files that a script includes declare."""
    found = re.search("^-- include: (.*)$", SOURCES[name].read_text(), re.MULTILINE)
    texts = [SOURCES[part].read_text() for part in found[1].split()] if found else []
    lists = [line for text in texts for line in re.findall(r"^local (?:function )?(\w+(?:, \w+)*)", text, re.MULTILINE)]
    return {declared for line in lists for declared in line.split(", ")}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_script_ends_where_it_may_not_announce(name: str) -> None:
    """A server whose user has no channels must not undo half of a script."""
    told = re.findall(r"(\S+)\('S?PUBLISH'", code("\n" + SOURCES[name].read_text()))
    assert set(told) <= {"redis.pcall"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_whatever_a_script_uses_is_declared_before(name: str) -> None:
    text = code(assemble(name))
    LuaRuntime().compile(text)
    for shared in shared_names(name):
        used, declared = (
            re.search(pattern, text, re.MULTILINE)
            for pattern in (rf"\b{shared}\b", rf"^ *local (?:function )?(?:\w+, )*{shared}\b")
        )
        assert used is None or (declared is not None and declared.start() <= used.start()), shared


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_sent_no_function_that_it_does_not_name(name: str) -> None:
    text = code(assemble(name))
    functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    assert [function for function in functions if len(re.findall(rf"\b{function}\b", text)) == 1] == []


def test_statements_are_taken_through_others_and_stay_in_order() -> None:
    included = (
        "-- all\nlocal a, b = 1, 2\n\nlocal function f(x)\n  -- why\n  return b\nend\n\nlocal c = f\nlocal d = c\n"
    )
    assert needed(included, "-- d\nreturn c(1)\n") == [
        "local a, b = 1, 2",
        "local function f(x)\n  return b\nend",
        "local c = f",
    ]
    assert needed(included, "return 1\n") == []


def test_a_script_keeps_its_first_line_or_that_with_other_flags() -> None:
    assert load_script("write").text.startswith(b"#!lua\n")
    assert load_script("write", "allow-oom").text.startswith(b"#!lua flags=allow-oom\n")


def lua(expression: str) -> Any:
    """What an expression with functions of the prelude gives, without Redis."""
    shared = "\n".join(needed(SOURCES["prelude"].read_text(), expression))
    return LuaRuntime(encoding=None).execute(f"redis = {{}} {shared} return {expression}".encode())


def test_digits_are_compared_as_the_numbers_that_they_stand_for() -> None:
    is_above = lua("is_above")
    some = random.Random(1)
    for place in range(54):
        low = some.randrange(LARGEST) & ~(1 << place)
        lower, higher = encode_revision(low), encode_revision(low | 1 << place)
        found = (is_above(higher, lower), is_above(lower, higher), is_above(lower, lower))
        assert found == (True, False, False), (lower, higher)


def test_revisions_are_read_and_written_in_lua_as_in_python() -> None:
    rev_number, rev_digits = lua("rev_number"), lua("rev_digits")
    some = random.Random(2)
    for number in (0, 1, 63, 64, 2**53 - 1, *(some.randrange(2**53) for _ in range(100))):
        assert (rev_digits(number), rev_number(encode_revision(number))) == (encode_revision(number), number)


def test_only_what_follows_the_first_nine_digits_is_left_out_of_a_comparison() -> None:
    is_above = lua("is_above")
    assert not is_above(b"--------5z", b"--------5-")
    assert decode_revision(b"--------5") == 6
